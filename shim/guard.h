// A driver call made while another of our functions runs on the same thread goes straight on: it is
// the driver's own, or ours.
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
