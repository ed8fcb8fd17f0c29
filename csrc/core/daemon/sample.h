// A sample: the functions that a process launched for a while, and their parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/window.h"

namespace tandem::daemon {

struct SampledFunction {
  uint64_t handle = 0;
  std::string name;              // mangled; empty if the driver does not tell
  std::vector<uint64_t> layout;  // per parameter: offset << 32 | bytes
  bool is_cut = false;           // it has more parameters than these
};

struct SampledLaunch {
  uint32_t number = 0;      // as in the low half of its telemetry record's value
  uint32_t thread = 0;      // tid
  uint32_t function = 0;    // index in Sample::functions, or Sample::kUnknown
  bool is_cut = false;      // it has more words than these
  uint32_t first_word = 0;  // index in Sample::words
  uint32_t word_count = 0;
};

// What the process says about itself, within bounds. A launch has unknown parameters if its
// telemetry record has no number, or one that is not found here.
struct Sample {
  static constexpr uint32_t kUnknown = UINT32_MAX;

  uint32_t number = 0;
  std::vector<SampledFunction> functions;
  std::vector<SampledLaunch> launches;   // in the order in which they were written
  std::vector<uint64_t> words;           // each parameter starts at a new word
  uint64_t lost = 0;                     // launches known to be missing
  std::shared_ptr<const Window> window;  // the window requested with it; null if none was
};

}  // namespace tandem::daemon
