// Measures how much of the last second something was busy, and how long in total.
#pragma once

#include <cstdint>
#include <deque>

namespace tandem::softgpu {

class BusyWindow {
 public:
  // Busy, or not, from now_ns on. Times never go back.
  void set(bool busy, uint64_t now_ns);
  double ratio(uint64_t now_ns) const;  // of the last second, or of the time since 0 if shorter
  uint64_t total_ns(uint64_t now_ns) const;

 private:
  struct Span {
    uint64_t start_ns, end_ns;
  };
  std::deque<Span> spans_;  // ended within the last second, in order
  uint64_t total_ns_ = 0;
  uint64_t busy_since_ns_ = 0;
  bool busy_ = false;
};

}  // namespace tandem::softgpu
