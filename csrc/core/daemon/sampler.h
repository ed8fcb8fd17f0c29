// One sample of a process from beginning to end.
#pragma once

#include <cstdint>
#include <optional>

#include "daemon/sample_reader.h"
#include "daemon/shared.h"

namespace tandem::daemon {

// A sample ends when the first of these is reached.
struct SampleLimits {
  uint32_t launches = 0;     // this many were read, or more; 1 to SampleReader::kMostLaunches
  bool with_window = false;  // a window was requested with the sample; ends when the window does
  uint64_t until_ns = 0;     // attach clock
};

class Sampler {
 public:
  // Asks the process for a sample. Returns its number.
  uint32_t begin(const Pages& pages, const SampleLimits& limits);

  // One round of the daemon: reads what is there, and ends the sample when it is time.
  void look(const Pages& pages, bool takes_window, uint64_t now_ns);

  bool under_way() const { return state_ == State::kAsking || state_ == State::kEnding; }
  // Returns that sample, once, when it is complete.
  std::optional<Sample> take(uint32_t number);

 private:
  // When the flag is cleared, a thread may be in the middle of a launch: kEnding waits for one more
  // look.
  enum class State : uint8_t { kNone, kAsking, kEnding, kEnded };

  bool is_time(bool takes_window, uint64_t now_ns) const;

  State state_ = State::kNone;
  SampleLimits limits_;
  SampleReader reader_;
};

}  // namespace tandem::daemon
