// What a process has allocated, as far as its telemetry tells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dag/allocations.h"
#include "shm_layout.h"

namespace tandem::daemon {

// Of one thread. Of rounds in which records were lost, and before, nothing is known.
class LiveMemory {
 public:
  // Threads have rings of their own: what a round reads comes in any order,
  void take(const shm::Record* records, size_t count, uint64_t lost);
  // and takes effect, by its times, when all is there.
  void settle();

  const std::vector<dag::Allocation>& known() const { return allocations_.known(); }

 private:
  void apply(const shm::Record& record);

  std::vector<shm::Record> taken_;
  bool has_lost_ = false;
  dag::Allocations allocations_;
};

}  // namespace tandem::daemon
