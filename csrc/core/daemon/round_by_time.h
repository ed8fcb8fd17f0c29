// The records of all rings of a process in one round, merged by time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

#include "shm_layout.h"

namespace tandem::daemon {

class RoundByTime {
 public:
  // Adds what one ring brought, oldest first, keeping the records for which `concerns` is true.
  template <typename Concerns>
  void add(const shm::Record* records, size_t count, Concerns concerns) {
    const auto others = static_cast<ptrdiff_t>(records_.size());
    std::copy_if(records, records + count, std::back_inserter(records_), concerns);
    if (others == 0) return;
    std::inplace_merge(
        records_.begin(), records_.begin() + others, records_.end(),
        [](const shm::Record& left, const shm::Record& right) { return left.ticks < right.ticks; });
  }
  bool empty() const { return records_.empty(); }
  void clear() { records_.clear(); }
  auto begin() const { return records_.begin(); }
  auto end() const { return records_.end(); }

 private:
  std::vector<shm::Record> records_;
};

}  // namespace tandem::daemon
