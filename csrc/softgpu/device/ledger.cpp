#include "ledger.h"

#include <iterator>

namespace tandem::softgpu {

bool Ledger::reserve(uint64_t allocation, uint32_t connection, uint64_t bytes) {
  if (bytes > free_bytes()) return false;
  held_.emplace(allocation, Held{connection, bytes});
  used_bytes_ += bytes;
  used_by_[connection] += bytes;
  return true;
}

bool Ledger::retain(uint64_t allocation, uint32_t connection) {
  const auto found = held_.find(allocation);
  if (found == held_.end()) return false;
  Held& held = found->second;
  if (held.connection == connection) {
    ++held.own;
  } else {
    ++held.holders[connection];
  }
  return true;
}

bool Ledger::release(uint64_t allocation, uint32_t connection) {
  const auto found = held_.find(allocation);
  if (found == held_.end()) return false;
  Held& held = found->second;
  if (held.connection == connection) {
    if (--held.own == 0) leave(found);
    return true;
  }
  const auto holder = held.holders.find(connection);
  if (holder == held.holders.end()) return false;
  if (--holder->second == 0) held.holders.erase(holder);
  return true;
}

void Ledger::release_all(uint32_t connection) {
  for (auto it = held_.begin(); it != held_.end();) {
    it->second.holders.erase(connection);
    it = it->second.connection == connection ? leave(it) : std::next(it);
  }
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

Ledger::Holding Ledger::leave(Holding it) {
  Held& held = it->second;
  used_by_[held.connection] -= held.bytes;
  if (held.holders.empty()) {
    used_bytes_ -= held.bytes;
    return held_.erase(it);
  }
  const auto heir = held.holders.begin();
  held.connection = heir->first;
  held.own = heir->second;
  held.holders.erase(heir);
  used_by_[held.connection] += held.bytes;
  return std::next(it);
}

uint64_t Ledger::used_bytes(uint32_t connection) const {
  const auto found = used_by_.find(connection);
  return found == used_by_.end() ? 0 : found->second;
}

}  // namespace tandem::softgpu
