// The address space of one memory pool, as offsets: which parts have memory behind them, which of
// those are in use, and after what the others may be reused. Bookkeeping only: the caller maps
// pages, asks the ledger and holds the lock.
//
// Memory comes and goes in segments of whole granules. A free part remembers its free until its
// reuse needs no order any more; adjacent parts are joined when they have the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace softgpu {

constexpr size_t kPage = 4096;
constexpr size_t kPoolGranule = 2 * 1024 * 1024;
constexpr size_t kPoolAlignment = 512;

constexpr size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

// A free in a stream: its position there, and what must be done before it takes effect.
struct FreedIn {
  uint64_t stream = 0;  // 0: no order to keep, any stream may use the memory
  uint64_t context = 0;
  bool legacy = false, blocking = false;
  uint64_t position = 0;          // newest operation of that stream at the time
  std::vector<uint64_t> after{};  // operations
};

class PoolArena {
 public:
  struct Segment {
    size_t bytes;
    uint64_t allocation;  // number in the ledger; 0 while it is being requested
  };
  struct Free {
    size_t bytes;
    FreedIn freed;
  };
  using FreeMap = std::map<size_t, Free>;

  // Segments. `claim` finds room for one, still without memory; `back` or `forget` follows.
  bool claim(size_t bytes, size_t capacity, size_t* offset);
  void back(size_t offset, uint64_t allocation);  // its memory is free for all from now on
  void forget(size_t offset);                     // it must be wholly free, or never backed
  const std::map<size_t, Segment>& segments() const { return segments_; }
  bool wholly_free(size_t offset, size_t bytes) const;

  // Parts in use.
  void take(FreeMap::const_iterator part, size_t bytes);
  size_t give_back(size_t offset, FreedIn freed);  // returns how many bytes it was
  size_t used_count() const { return used_.size(); }

  const FreeMap& free_parts() const { return free_; }
  // Forgets the order of the parts for which `ended` holds.
  template <class Ended>
  void settle(Ended ended) {
    std::vector<size_t> settled;
    for (auto& [offset, part] : free_) {
      if (part.freed.stream == 0 || !ended(part.freed)) continue;
      part.freed = {};
      settled.push_back(offset);
    }
    for (const size_t offset : settled) join_around(offset);
  }

 private:
  void join_around(size_t offset);
  bool join_with_next(FreeMap::iterator part);

  std::map<size_t, Segment> segments_;
  std::map<size_t, size_t> used_;
  FreeMap free_;
};

}  // namespace softgpu
