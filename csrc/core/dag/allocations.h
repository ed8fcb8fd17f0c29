// The device memory of a process, by address, while calls go by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::dag {

struct Allocation {
  uint64_t base;
  uint64_t bytes;
};

// The one that an address lies in; null: none. `known` is sorted by base, and its members do not overlap.
const Allocation* holding(const std::vector<Allocation>& known, uint64_t address);

// Looking up takes logarithmic time. At most kMost at once; further ones stay unknown.
class Allocations {
 public:
  static constexpr size_t kMost = size_t{1} << 16;

  // From now on it is there. What it overlaps must have been freed unseen, and is forgotten.
  void add(Allocation added);
  // How large it was, 0 if it was not known.
  uint64_t remove(uint64_t base);
  void clear() { known_.clear(); }

  const std::vector<Allocation>& known() const { return known_; }

 private:
  std::vector<Allocation> known_;
};

}  // namespace tandem::dag
