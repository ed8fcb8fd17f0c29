// What this process holds of device memory: one table for all kinds of handles.
//
// An entry is forgotten before the driver is asked to free, because the driver may give the same
// address or handle out again at once, to another thread; it is put back when the driver refuses.
// A handle that is not in the table is none of our business.
#pragma once

#include <cstddef>
#include <cstdint>

#include "short_lock.h"

namespace tandem::shim::holdings {

enum class Kind : uint8_t {
  kNone = 0,
  // By address.
  kLinear,    // cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged
  kPooled,    // cuMemAllocAsync and cuMemAllocFromPoolAsync; owner: the pool's row
  kPacked,    // cuMemAlloc, in a slab that is counted instead (slabs.h)
  kImported,  // another process's, from cuIpcOpenMemHandle or cuMemPoolImportPointer
  kMapping,   // cuMemMap; owner: the physical memory's number
  // By handle.
  kHandle,    // of physical memory, see physical.h; owner: its number
  kArray,
  kMipmapped,
  kGraphExec,  // with memory nodes, see graph_memory.h
  kContext,    // made by the program, which a primary one is not
  // By a number of ours.
  kPhysical,
};

struct Entry {
  uint64_t key = 0;
  uint64_t owner = 0;  // see Kind; else the context
  uint64_t bytes = 0;
  Kind kind = Kind::kNone;
  uint8_t device = 0;
  uint32_t count = 1;  // how often the program holds it
};
static_assert(sizeof(Entry) == 32);

// An open-addressing table in memory of its own: the job's heap is not ours to use. Not locked.
class Table {
 public:
  // Replaces an entry with the same key and kind, which it tells. False: no memory, the entry is not in it.
  bool put(const Entry& entry, Entry* replaced = nullptr);
  Entry* find(Kind kind, uint64_t key);
  // Removes what find returned; moves others, so that no pointer into the table stays good.
  void erase(Entry* entry);
  void clear();

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] size_t capacity() const { return capacity_; }

  template <class Visit>
  void for_each(Visit visit) {
    for (size_t i = 0; i < capacity_; ++i) {
      if (entries_[i].kind != Kind::kNone) visit(entries_[i]);
    }
  }

  // Erases those for which visit(entry) says true. It may see an entry twice.
  template <class Visit>
  void erase_if(Visit visit) {
    for (size_t i = 0; i < capacity_;) {
      // Erasing may move another one here.
      if (entries_[i].kind != Kind::kNone && visit(entries_[i])) erase(&entries_[i]);
      else ++i;
    }
  }

 private:
  bool make_room();
  [[nodiscard]] size_t home_of(const Entry& entry) const;

  Entry* entries_ = nullptr;
  size_t capacity_ = 0;  // a power of two
  size_t size_ = 0;
};

// The process's table and its lock. Only that of the amounts (memory.h) is taken under it; nothing is
// called but mmap.
class Locked {
 public:
  Locked() : holds_(&g_lock) {}
  Table* operator->() const { return &g_table; }
  Table& operator*() const { return g_table; }

 private:
  static ShortLock g_lock;
  static Table g_table;
  friend void lock_for_fork();
  friend void unlock_after_fork();
  friend void start_afresh();

  HoldsShortLock holds_;
};

// Returns the entry it replaced: whatever that was, it is gone, since its address is in use anew.
Entry put(const Entry& entry);
// Takes the entry out; one with kNone if there is none.
Entry take_out(Kind kind, uint64_t key);

// Fork: around it, so that the child gets a whole table; then the child starts from nothing.
void lock_for_fork();
void unlock_after_fork();
void start_afresh();

}  // namespace tandem::shim::holdings
