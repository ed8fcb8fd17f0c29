#include "busy_window.h"

#include <algorithm>

namespace tandem::softgpu {
namespace {
constexpr uint64_t kWindowNs = 1'000'000'000;
}

void BusyWindow::set(bool busy, uint64_t now_ns) {
  if (busy == busy_) return;
  busy_ = busy;
  if (busy) {
    busy_since_ns_ = now_ns;
    return;
  }
  total_ns_ += now_ns - busy_since_ns_;
  if (!spans_.empty() && spans_.back().end_ns == busy_since_ns_) {
    spans_.back().end_ns = now_ns;
  } else if (now_ns > busy_since_ns_) {
    spans_.push_back({busy_since_ns_, now_ns});
  }
  while (!spans_.empty() && spans_.front().end_ns + kWindowNs < now_ns) spans_.pop_front();
}

double BusyWindow::ratio(uint64_t now_ns) const {
  const uint64_t begin_ns = now_ns > kWindowNs ? now_ns - kWindowNs : 0;
  if (now_ns == begin_ns) return 0;
  uint64_t busy_ns = busy_ ? now_ns - std::max(busy_since_ns_, begin_ns) : 0;
  for (const Span& span : spans_) {
    if (span.end_ns > begin_ns) busy_ns += span.end_ns - std::max(span.start_ns, begin_ns);
  }
  return static_cast<double>(busy_ns) / static_cast<double>(now_ns - begin_ns);
}

uint64_t BusyWindow::total_ns(uint64_t now_ns) const {
  return total_ns_ + (busy_ ? now_ns - busy_since_ns_ : 0);
}

}  // namespace tandem::softgpu
