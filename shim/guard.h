// Detects nested driver calls. A driver call that is made while another function of the shim runs
// on the same thread goes straight to the driver: it comes from the driver itself, or from the
// shim.
#pragma once

namespace tandem::shim {

class Reentry {
 public:
  Reentry() : outermost_(!inside_) { inside_ = true; }
  ~Reentry() {
    if (outermost_) inside_ = false;
  }
  Reentry(const Reentry&) = delete;
  Reentry& operator=(const Reentry&) = delete;
  [[nodiscard]] bool outermost() const { return outermost_; }

 private:
  // initial-exec: one load, no call into the loader; __thread: no wrapper function.
  static __thread bool inside_ __attribute__((tls_model("initial-exec")));
  bool outermost_;
};

}  // namespace tandem::shim
