// The gaps in the GPU work of one process, and what they let others expect: brings the records of its
// threads together. Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dag/gaps.h"
#include "daemon/round_by_time.h"
#include "daemon/snapshot.h"

namespace tandem::daemon {

class GapWatch {
 public:
  // What one ring had in this round, oldest first, with nanoseconds for ticks.
  void take(const shm::Record* records, size_t count, uint64_t dropped);
  // After all rings. Sets the snapshot's gap_ figures, to the linger it tells.
  void look(Snapshot* snapshot);

 private:
  static constexpr uint64_t kNever = UINT64_MAX;

  dag::GapFinder finder_;
  RoundByTime round_;
  bool lost_ = false;
  uint64_t linger_ns_ = kNever;  // that the figures were told for
};

}  // namespace tandem::daemon
