#include "holdings.h"

#include <sys/mman.h>

namespace tandem::shim::holdings {
namespace {

constexpr size_t kFirstCapacity = 1024;

size_t hash_of(uint64_t key) { return static_cast<size_t>((key >> 3) * 0x9e3779b97f4a7c15u >> 20); }

}  // namespace

size_t Table::home_of(const Entry& entry) const { return hash_of(entry.key) & (capacity_ - 1); }

Entry* Table::find(Kind kind, uint64_t key) {
  if (!size_) return nullptr;
  for (size_t at = hash_of(key) & (capacity_ - 1); entries_[at].kind != Kind::kNone;
       at = (at + 1) & (capacity_ - 1)) {
    if (entries_[at].key == key && entries_[at].kind == kind) return &entries_[at];
  }
  return nullptr;
}

// A single probe, whether or not the entry is known.
bool Table::put(const Entry& entry, Entry* replaced) {
  const bool has_room = make_room();
  if (!capacity_) return false;
  size_t at = home_of(entry);
  for (; entries_[at].kind != Kind::kNone; at = (at + 1) & (capacity_ - 1)) {
    if (entries_[at].key != entry.key || entries_[at].kind != entry.kind) continue;
    if (replaced) *replaced = entries_[at];
    entries_[at] = entry;
    return true;
  }
  if (!has_room) return false;
  entries_[at] = entry;
  ++size_;
  return true;
}

// Closes the gap: moves up entries that a probe would have found past it, so no tombstones are
// needed.
void Table::erase(Entry* entry) {
  size_t gap = static_cast<size_t>(entry - entries_);
  for (size_t at = (gap + 1) & (capacity_ - 1); entries_[at].kind != Kind::kNone;
       at = (at + 1) & (capacity_ - 1)) {
    const size_t home = home_of(entries_[at]);
    const bool reaches_gap = ((at - home) & (capacity_ - 1)) >= ((at - gap) & (capacity_ - 1));
    if (!reaches_gap) continue;
    entries_[gap] = entries_[at];
    gap = at;
  }
  entries_[gap] = Entry{};
  --size_;
}

// Doubles the capacity when two thirds are filled.
bool Table::make_room() {
  if (capacity_ && (size_ + 1) * 3 <= capacity_ * 2) return true;
  const size_t capacity = capacity_ ? capacity_ * 2 : kFirstCapacity;
  void* fresh = mmap(nullptr, capacity * sizeof(Entry), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return size_ + 1 < capacity_;  // one place must stay free to end a probe
  Entry* const old = entries_;
  const size_t old_capacity = capacity_;
  entries_ = static_cast<Entry*>(fresh);
  capacity_ = capacity;
  for (size_t i = 0; i < old_capacity; ++i) {
    if (old[i].kind == Kind::kNone) continue;
    size_t at = home_of(old[i]);
    while (entries_[at].kind != Kind::kNone) at = (at + 1) & (capacity_ - 1);
    entries_[at] = old[i];
  }
  if (old) munmap(old, old_capacity * sizeof(Entry));
  return true;
}

void Table::clear() {
  if (entries_) munmap(entries_, capacity_ * sizeof(Entry));
  entries_ = nullptr;
  capacity_ = size_ = 0;
}

ShortLock Locked::g_lock;
Table Locked::g_table;

Entry put(const Entry& entry) {
  Entry replaced;
  const Locked table;
  table->put(entry, &replaced);
  return replaced;
}

Entry take_out(Kind kind, uint64_t key) {
  const Locked table;
  Entry* found = table->find(kind, key);
  if (!found) return {};
  const Entry entry = *found;
  table->erase(found);
  return entry;
}

void lock_for_fork() { Locked::g_lock.lock(); }
void unlock_after_fork() { Locked::g_lock.unlock(); }
void start_afresh() { Locked::g_table.clear(); }

}  // namespace tandem::shim::holdings
