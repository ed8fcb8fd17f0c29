// When each buffer is used next: that decides what to evict and when to fetch it (Belady 1966).
//
// A buffer is the range covered by accesses of the window that share bytes. Where an operation in
// between may touch more memory than is known, or operations are missing, the distance is an upper
// bound: the next use may come sooner, and a buffer without a next use may have one.
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/schedule.h"

namespace tandem::dag::analysis {

inline constexpr uint32_t kNoUse = UINT32_MAX;

struct NextUses {
  struct Buffer {
    uint64_t address;
    uint64_t bytes;
    uint32_t first_use;  // index in uses
    uint32_t last_use;
  };
  struct Use {
    uint32_t node;    // relative to the window's first node
    uint32_t buffer;  // index in buffers
    uint32_t next;    // index of the buffer's next use, in the next iteration if it comes earlier;
                      // kNoUse = none known
    bool is_bound;    // something in between is not known
  };
  std::vector<Buffer> buffers;  // by address
  std::vector<Use> uses;        // by node
};

// `periodic`: the window is an iteration that will be repeated.
NextUses next_uses(const Window& window, bool periodic);

// From the end of a use, which must have a next one, to the start of that; 0 if that begins before.
// `period_ns` is from one iteration's start to the next; `first` is the window's first node.
struct Distance {
  uint64_t nodes;
  uint64_t ns;
};
Distance distance(const NextUses& all, size_t use, const Schedule& schedule, NodeId first,
                  uint64_t period_ns);

}  // namespace tandem::dag::analysis
