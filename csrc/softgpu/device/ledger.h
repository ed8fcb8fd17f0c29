// Keeps account of who holds how much memory of one device. Contents live in the clients; this has
// only amounts.
#pragma once

#include <cstdint>
#include <map>

#include "protocol.h"

namespace tandem::softgpu {

class Ledger {
 public:
  explicit Ledger(uint64_t total_bytes) : total_bytes_(total_bytes) {}

  // Returns false if it does not fit. `allocation` is the caller's number, never used before.
  bool reserve(uint64_t allocation, uint32_t connection, uint64_t bytes);

  // Adds a holder: another client, or the same one once more. The allocation stays charged to its
  // first holder until that one releases it, then to the next. Returns false if there is no such
  // allocation.
  bool retain(uint64_t allocation, uint32_t connection);

  // Returns false if that connection holds no such allocation.
  bool release(uint64_t allocation, uint32_t connection);
  void release_all(uint32_t connection);

  // Checkpoint: after suspend, what the connection holds takes no room until it is resumed.
  // Resuming is impossible while it does not fit.
  void suspend(uint32_t connection);
  bool can_resume(uint32_t connection) const;
  void resume(uint32_t connection);

  uint64_t used_bytes(uint32_t connection) const;
  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t total_bytes() const { return total_bytes_; }
  uint64_t free_bytes() const { return total_bytes_ - used_bytes_; }

 private:
  struct Held {
    uint32_t connection;  // the one charged
    uint64_t bytes;
    // Other holders and how often each retained it; mostly none.
    std::map<uint32_t, uint64_t> holders{};
    uint64_t own = 1;  // how often the charged connection holds it
  };
  using Holding = std::map<uint64_t, Held>::iterator;
  // Removes the charged holder; returns the next entry of the map.
  Holding leave(Holding held);

  uint64_t total_bytes_;
  uint64_t used_bytes_ = 0;
  std::map<uint64_t, Held> held_;
  std::map<uint32_t, uint64_t> used_by_;
  std::map<uint32_t, uint64_t> suspended_;  // bytes by connection
};

}  // namespace tandem::softgpu
