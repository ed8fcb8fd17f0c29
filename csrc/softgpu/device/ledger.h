// Who holds how much memory of one device. Contents live in the clients; here are only amounts.
#pragma once

#include <cstdint>
#include <map>

#include "protocol.h"

namespace tandem::softgpu {

class Ledger {
 public:
  explicit Ledger(uint64_t total_bytes) : total_bytes_(total_bytes) {}

  // False when it does not fit. `allocation` is the caller's number, never used before.
  bool reserve(uint64_t allocation, uint32_t connection, uint64_t bytes);

  // One more holder, of another client's memory or once more of its own. It stays charged to the
  // first one until that one lets go, then to the next. False when there is no such allocation.
  bool retain(uint64_t allocation, uint32_t connection);

  // False when that connection holds no such allocation.
  bool release(uint64_t allocation, uint32_t connection);
  void release_all(uint32_t connection);

  // Checkpoint: what the connection holds takes no room until it is resumed, which fails when it
  // no longer fits.
  void suspend(uint32_t connection);
  bool can_resume(uint32_t connection) const;
  void resume(uint32_t connection);

  uint64_t used_bytes(uint32_t connection) const;
  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t total_bytes() const { return total_bytes_; }
  uint64_t free_bytes() const { return total_bytes_ - used_bytes_; }

 private:
  struct Held {
    uint32_t connection;  // charged
    uint64_t bytes;
    std::map<uint32_t, uint64_t> holders{};  // of those who retained it; most have none
    uint64_t own = 1;                        // how often the charged one holds it
  };
  using Holding = std::map<uint64_t, Held>::iterator;
  Holding leave(Holding held);  // the charged one lets go; what comes after it in the map

  uint64_t total_bytes_;
  uint64_t used_bytes_ = 0;
  std::map<uint64_t, Held> held_;
  std::map<uint32_t, uint64_t> used_by_;
  std::map<uint32_t, uint64_t> suspended_;  // bytes by connection
};

}  // namespace tandem::softgpu
