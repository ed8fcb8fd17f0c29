// What bounds the work of a window, as far as its records and the sample taken meanwhile tell: the
// classes of dag/analysis/classes.h, summed up.
#pragma once

#include <cstdint>

#include "dag/analysis/classes.h"
#include "daemon/sample.h"
#include "daemon/window.h"

namespace tandem::daemon {

struct Bounds {
  double share[dag::analysis::kClassCount] = {};  // of GPU time, by Class; all 0: nothing is timed
  uint64_t operations = 0;                        // on the GPU
  uint64_t untimed = 0;                           // of these; they are in no share
};

// A launch is `unknown`, unless it is `small`, where it may have been given other buffers than those
// found; that buffers hold addresses of further ones is not looked for. Durations that do not fit into
// whole iterations are shortened alike until they do. Takes time in proportion to
// the window's records and to what its launches were given.
Bounds bounds_of(const Window& window, const Sample& sample, const dag::analysis::Device& device);

}  // namespace tandem::daemon
