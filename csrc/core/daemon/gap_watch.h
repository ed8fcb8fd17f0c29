// The gaps in the GPU work of one process and what others can expect of them, from the merged
// records of all its threads. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/round_by_time.h"
#include "daemon/snapshot.h"
#include "dag/gaps.h"

namespace tandem::daemon {

class GapWatch {
 public:
  // Adds what one ring brought in this round, oldest first, with ticks in nanoseconds.
  void take(const shm::Record* records, size_t count, uint64_t dropped);
  // Call after all rings. Sets the snapshot's gap_ figures, for the linger that the snapshot tells.
  void look(Snapshot* snapshot);

 private:
  static constexpr uint64_t kNever = UINT64_MAX;

  dag::GapFinder finder_;
  RoundByTime round_;
  bool lost_ = false;
  uint64_t linger_ns_ = kNever;  // the linger for which the figures were computed
};

}  // namespace tandem::daemon
