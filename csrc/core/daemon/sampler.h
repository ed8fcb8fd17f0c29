// One sample of a process from its begin to its end.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/sample_reader.h"
#include "daemon/shared.h"

namespace tandem::daemon {

// Whichever comes first ends it.
struct SampleLimits {
  uint32_t launches = 0;     // at least so many were read; 1 to SampleReader::kMostLaunches
  bool with_window = false;  // a window is asked for together with it; it ends when that does
  uint64_t until_ns = 0;     // attach clock
};

class Sampler {
 public:
  // Asks the process for a sample. Returns its number.
  uint32_t begin(const Pages& pages, const SampleLimits& limits);

  // A round of the daemon: reads what there is, and ends the sample when it is time.
  void look(const Pages& pages, bool takes_window, uint64_t now_ns);

  bool under_way() const { return state_ == State::kAsking || state_ == State::kEnding; }
  // That sample, once, when nothing more of it will come.
  std::optional<Sample> take(uint32_t number);

 private:
  // A thread may be in the middle of a launch when the flag is taken away: so there is a last look.
  enum class State : uint8_t { kNone, kAsking, kEnding, kEnded };

  bool is_time(bool takes_window, uint64_t now_ns) const;

  State state_ = State::kNone;
  SampleLimits limits_;
  SampleReader reader_;
};

}  // namespace tandem::daemon
