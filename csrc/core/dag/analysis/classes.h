// What bounds each GPU operation, after the roofline model (Williams, Waterman and Patterson 2009), as
// far as telemetry lets one say. Of a kernel it knows the duration, the blocks and which buffers it
// was given: not what it computes, nor how much of the buffers it touches, or how often.
//
//   copy     a copy or a memset
//   small    fewer blocks than SMs, or shorter than `small_ns`: it cannot fill the GPU
//   memory   its buffers, each byte moved once, need `memory_share` or more of its duration at full
//            bandwidth. Sound if it touches all of them; so nothing is said if they would need
//            more than the whole duration, for then it did not, or had them in a cache
//   compute  they need less than `compute_share`: moving its buffers once does not explain the
//            duration. It may move them again and again, or wait for latency: what is said is that
//            traffic that cannot be avoided leaves bandwidth to others
//   unknown  all else: graphs, unknown durations, unresolved buffers, what lies between the shares
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/schedule.h"

namespace tandem::dag::analysis {

enum class Class : uint8_t { kCompute, kMemory, kCopy, kSmall, kUnknown, kNone };
inline constexpr uint32_t kClassCount = 5;  // without kNone: what is no GPU operation

struct Device {
  uint32_t sm_count = 0;               // 0 = not known
  uint64_t bandwidth_bytes_per_s = 0;  // of its memory; 0 = not known
  uint64_t small_ns = 5000;
  double memory_share = 0.6;
  double compute_share = 0.2;
};

struct Classes {
  std::vector<Class> of;              // each node of the window
  double share[kClassCount] = {};     // of GPU time
  Class dominating = Class::kNone;  // has more than half of GPU time; kNone if none has
};

Classes classes(const Window& window, const Schedule& schedule, const Device& device);

}  // namespace tandem::dag::analysis
