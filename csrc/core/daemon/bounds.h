// What bounds the work of a window, as far as its records and the sample taken meanwhile tell: the
// totals of the classes of dag/analysis/classes.h.
#pragma once

#include <cstdint>

#include "daemon/sample.h"
#include "daemon/window.h"
#include "dag/analysis/classes.h"

namespace tandem::daemon {

struct Bounds {
  double share[dag::analysis::kClassCount] = {};  // of GPU time, by Class; all 0: nothing is timed
  uint64_t operations = 0;                        // on the GPU
  uint64_t untimed = 0;                           // of these; they count in no share
};

// A launch that may have been given buffers other than those found is `unknown`, unless it is
// `small`. Buffers are not searched for addresses of further buffers. Durations that do not fit
// into whole iterations are all shortened by the same factor until they do. The cost is
// proportional to the window's records and to what its launches were given.
Bounds bounds_of(const Window& window, const Sample& sample, const dag::analysis::Device& device);

}  // namespace tandem::daemon
