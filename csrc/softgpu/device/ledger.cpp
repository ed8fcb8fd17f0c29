#include "ledger.h"

namespace tandem::softgpu {

bool Ledger::reserve(uint64_t allocation, uint32_t connection, uint64_t bytes, MemKind kind) {
  if (bytes > free_bytes()) return false;
  held_.emplace(allocation, Held{connection, bytes, kind});
  used_bytes_ += bytes;
  used_by_[connection] += bytes;
  return true;
}

bool Ledger::release(uint64_t allocation, uint32_t connection) {
  const auto found = held_.find(allocation);
  if (found == held_.end() || found->second.connection != connection) return false;
  used_bytes_ -= found->second.bytes;
  used_by_[connection] -= found->second.bytes;
  held_.erase(found);
  return true;
}

void Ledger::release_all(uint32_t connection) {
  for (auto it = held_.begin(); it != held_.end();) {
    it = it->second.connection == connection ? held_.erase(it) : std::next(it);
  }
  used_bytes_ -= used_bytes(connection);
  used_by_.erase(connection);
  suspended_.erase(connection);
}

void Ledger::suspend(uint32_t connection) {
  const uint64_t bytes = used_bytes(connection);
  used_bytes_ -= bytes;
  used_by_.erase(connection);
  suspended_[connection] = bytes;
}

bool Ledger::can_resume(uint32_t connection) const {
  const auto found = suspended_.find(connection);
  return found == suspended_.end() || found->second <= free_bytes();
}

void Ledger::resume(uint32_t connection) {
  const auto found = suspended_.find(connection);
  if (found == suspended_.end()) return;
  used_bytes_ += found->second;
  used_by_[connection] += found->second;
  suspended_.erase(found);
}

uint64_t Ledger::used_bytes(uint32_t connection) const {
  const auto found = used_by_.find(connection);
  return found == used_by_.end() ? 0 : found->second;
}

}  // namespace tandem::softgpu
