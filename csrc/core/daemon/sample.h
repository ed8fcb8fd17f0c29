// A sample: which functions a process launched for a while, with which parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/window.h"

namespace tandem::daemon {

struct SampledFunction {
  uint64_t handle = 0;
  std::string name;                // mangled; empty where the driver does not say it
  std::vector<uint64_t> layout;    // of each parameter: offset << 32 | bytes
  bool is_cut = false;             // it has more parameters than these
};

struct SampledLaunch {
  uint32_t number = 0;             // as in the low half of its telemetry record's value
  uint32_t thread = 0;             // tid
  uint32_t function = 0;           // in Sample::functions, or Sample::kUnknown
  bool is_cut = false;             // it has more words than these
  uint32_t first_word = 0;         // in Sample::words
  uint32_t word_count = 0;
};

// What the process says of itself, within bounds. A launch whose telemetry record carries no number, or
// one that is not here, has unknown parameters.
struct Sample {
  static constexpr uint32_t kUnknown = UINT32_MAX;

  uint32_t number = 0;
  std::vector<SampledFunction> functions;
  std::vector<SampledLaunch> launches;  // in the order in which they were written down
  std::vector<uint64_t> words;          // each parameter from a new word on
  uint64_t lost = 0;                    // launches known to be missing
  std::shared_ptr<const Window> window;  // the one asked for with it; null if none was
};

}  // namespace tandem::daemon
