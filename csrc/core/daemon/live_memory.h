// The allocations of a process, as far as its telemetry tells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dag/allocations.h"
#include "shm_layout.h"

namespace tandem::daemon {

// Used by one thread. Knows nothing of what was allocated before or in a round that lost records.
class LiveMemory {
 public:
  // Collects the records of one ring. The rings of a round may come in any order.
  void take(const shm::Record* records, size_t count, uint64_t lost);
  // Applies the collected records by time. Call when all rings of a round have been taken.
  void settle();

  const std::vector<dag::Allocation>& known() const { return allocations_.known(); }

 private:
  void apply(const shm::Record& record);

  std::vector<shm::Record> taken_;
  bool has_lost_ = false;
  dag::Allocations allocations_;
};

}  // namespace tandem::daemon
