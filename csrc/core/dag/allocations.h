// The device memory of a process, by address, followed call by call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::dag {

struct Allocation {
  uint64_t base;
  uint64_t bytes;
};

// Returns the allocation that contains the address; null if none does. `known` must be sorted by
// base, without overlaps.
const Allocation* holding(const std::vector<Allocation>& known, uint64_t address);

// Look-ups take logarithmic time. Holds at most kMost allocations; further ones stay unknown.
class Allocations {
 public:
  static constexpr size_t kMost = size_t{1} << 16;

  // Adds an allocation. Whatever it overlaps must have been freed unseen, and is forgotten.
  void add(Allocation added);
  // Removes an allocation and returns its size, 0 if it was not known.
  uint64_t remove(uint64_t base);
  void clear() { known_.clear(); }

  const std::vector<Allocation>& known() const { return known_; }

 private:
  std::vector<Allocation> known_;
};

}  // namespace tandem::dag
