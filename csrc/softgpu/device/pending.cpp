#include "pending.h"

#include <utility>

namespace tandem::softgpu {
namespace {

// Names without holders that are kept, because they may come again.
constexpr size_t kMostUnheld = 4096;

}  // namespace

uint32_t Names::hold(std::string_view name) {
  wanted_.assign(name);
  const auto found = numbers_.find(wanted_);
  if (found != numbers_.end()) {
    if (names_[found->second].holders++ == 0) --unheld_;
    return found->second;
  }
  if (unheld_ > kMostUnheld) forget_unheld();
  uint32_t number = static_cast<uint32_t>(names_.size());
  if (free_.empty()) {
    names_.emplace_back();
  } else {
    number = free_.back();
    free_.pop_back();
  }
  const auto added = numbers_.emplace(wanted_, number).first;
  names_[number] = {&added->first, 1};
  return number;
}

void Names::let_go(uint32_t number) {
  if (--names_[number].holders == 0) ++unheld_;
}

void Names::forget_unheld() {
  for (auto it = numbers_.begin(); it != numbers_.end();) {
    if (names_[it->second].holders > 0) {
      ++it;
      continue;
    }
    free_.push_back(it->second);
    it = numbers_.erase(it);
  }
  unheld_ = 0;
}

// The slot of `id`, or the free slot where it would be put.
size_t OpTable::slot_of(uint64_t id) const {
  size_t slot = home(id);
  while (slots_[slot] && slots_[slot]->id != id) slot = next(slot);
  return slot;
}

Pending* OpTable::find(uint64_t id) const { return slots_.empty() ? nullptr : slots_[slot_of(id)]; }

void OpTable::insert(Pending* op) {
  if ((size_ + 1) * 4 > slots_.size() * 3) grow();
  slots_[slot_of(op->id)] = op;
  ++size_;
}

void OpTable::grow() {
  const std::vector<Pending*> old =
      std::exchange(slots_, std::vector<Pending*>(slots_.empty() ? 16 : slots_.size() * 2));
  shift_ = 64;
  for (size_t slots = slots_.size(); slots > 1; slots /= 2) --shift_;
  for (Pending* op : old) {
    if (op) slots_[slot_of(op->id)] = op;
  }
}

// Moves up the entries that the erased one displaced, so that no tombstone is needed.
void OpTable::erase(uint64_t id) {
  size_t hole = slot_of(id);
  if (!slots_[hole]) return;
  --size_;
  for (size_t at = next(hole); slots_[at]; at = next(at)) {
    const size_t mask = slots_.size() - 1;
    const size_t distance = (at - home(slots_[at]->id)) & mask;
    if (distance < ((at - hole) & mask)) continue;  // it would be in front of its home slot
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = nullptr;
}

}  // namespace tandem::softgpu
