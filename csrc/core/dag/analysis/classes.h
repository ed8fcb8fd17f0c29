// What bounds each GPU operation, after the roofline model (Williams, Waterman and Patterson 2009),
// as far as telemetry tells. For a kernel, telemetry has the duration, the blocks and the buffers
// passed to it; not what it computes, nor how much of the buffers it touches, or how often.
//
//   copy     a copy or a memset
//   small    fewer blocks than SMs, or shorter than `small_ns`: it cannot fill the GPU
//   memory   moving each byte of its buffers once, at full bandwidth, takes at least `memory_share`
//            of its duration. Valid if it touches all of them, so it is `unknown` if that would
//            take more than the whole duration: then it did not, or had them in a cache
//   compute  that takes less than `compute_share`: moving its buffers once does not explain the
//            duration. It may move them repeatedly, or wait for latency; the claim is only that its
//            unavoidable traffic leaves bandwidth to others
//   unknown  all else: graphs, unknown durations, unresolved buffers, anything between the shares
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/schedule.h"

namespace tandem::dag::analysis {

enum class Class : uint8_t { kCompute, kMemory, kCopy, kSmall, kUnknown, kNone };
inline constexpr uint32_t kClassCount = 5;  // without kNone, which is no GPU operation

struct Device {
  uint32_t sm_count = 0;               // 0 = not known
  uint64_t bandwidth_bytes_per_s = 0;  // of the device's memory; 0 = not known
  uint64_t small_ns = 5000;
  double memory_share = 0.6;
  double compute_share = 0.2;
};

struct Classes {
  std::vector<Class> of;            // of each node of the window
  double share[kClassCount] = {};   // of GPU time
  Class dominating = Class::kNone;  // has more than half of the GPU time; kNone if none has
};

Classes classes(const Window& window, const Schedule& schedule, const Device& device);

}  // namespace tandem::dag::analysis
