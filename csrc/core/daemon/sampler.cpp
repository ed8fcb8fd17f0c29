#include "daemon/sampler.h"

namespace tandem::daemon {

uint32_t Sampler::begin(const Pages& pages, const SampleLimits& limits) {
  limits_ = limits;
  state_ = State::kAsking;
  const uint32_t number = pages.begin_sample();
  reader_.begin(number, pages.sample_header());
  return number;
}

void Sampler::look(const Pages& pages, bool takes_window, uint64_t now_ns) {
  if (!under_way()) return;
  reader_.read(pages.sample_header(), pages.sample_ring());
  if (state_ == State::kEnding) {
    state_ = State::kEnded;
  } else if (is_time(takes_window, now_ns)) {
    pages.end_sample();
    state_ = State::kEnding;
  }
}

bool Sampler::is_time(bool takes_window, uint64_t now_ns) const {
  const Sample& so_far = reader_.sample();
  const bool is_over = limits_.with_window && !takes_window;
  return is_over || now_ns >= limits_.until_ns ||
         so_far.launches.size() + so_far.lost >= limits_.launches;
}

std::optional<Sample> Sampler::take(uint32_t number) {
  if (state_ != State::kEnded || reader_.sample().number != number) return std::nullopt;
  state_ = State::kNone;
  return reader_.take();
}

}  // namespace tandem::daemon
