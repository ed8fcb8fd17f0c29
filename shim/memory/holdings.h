// The table of the device memory that this process holds, for all kinds of handles.
//
// An entry is removed before the driver is asked to free, because the driver may at once give the
// same address or handle to another thread; it is put back when the driver refuses. A handle that
// is not in the table does not concern the shim.
#pragma once

#include <cstddef>
#include <cstdint>

#include "short_lock.h"

namespace tandem::shim::holdings {

enum class Kind : uint8_t {
  kNone = 0,
  // Keyed by address.
  kLinear,    // cuMemAlloc, cuMemAllocPitch, cuMemAllocManaged
  kPooled,    // cuMemAllocAsync and cuMemAllocFromPoolAsync; owner: the pool's row
  kPacked,    // cuMemAlloc, in a slab that is counted in its place (slabs.h)
  kImported,  // another process's memory, from cuIpcOpenMemHandle or cuMemPoolImportPointer
  kMapping,   // cuMemMap; owner: the physical memory's number
  // Keyed by handle.
  kHandle,  // of physical memory, see physical.h; owner: its number
  kArray,
  kMipmapped,
  kGraphExec,  // with memory nodes, see graph_memory.h
  kContext,    // made by the program; primary contexts are not
  // Keyed by a number of the shim's.
  kPhysical,
};

struct Entry {
  uint64_t key = 0;
  uint64_t owner = 0;  // see Kind; otherwise the context
  uint64_t bytes = 0;
  Kind kind = Kind::kNone;
  uint8_t device = 0;
  uint32_t count = 1;  // how many times the program holds it
};
static_assert(sizeof(Entry) == 32);

// An open-addressing table in memory of its own, since the shim must not use the job's heap. Not
// locked.
class Table {
 public:
  // Replaces an entry with the same key and kind, and returns it in `replaced`. False: no memory,
  // the entry is not in the table.
  bool put(const Entry& entry, Entry* replaced = nullptr);
  Entry* find(Kind kind, uint64_t key);
  // Removes what `find` returned. Moves other entries, so no pointer into the table stays valid.
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

  // Erases the entries for which visit(entry) is true. `visit` may see an entry twice.
  template <class Visit>
  void erase_if(Visit visit) {
    for (size_t i = 0; i < capacity_;) {
      // Erasing may have moved another entry here.
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

// The process's table and its lock. The only lock taken under it is that of the amounts (memory.h),
// and the only call made is mmap.
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

// Returns the entry it replaced. Whatever that was is gone, since its address is in use again.
Entry put(const Entry& entry);
// Removes and returns the entry; returns one with kNone if there is none.
Entry take_out(Kind kind, uint64_t key);

// Lock and unlock bracket a fork, so that the child gets a consistent table; start_afresh then
// empties it in the child.
void lock_for_fork();
void unlock_after_fork();
void start_afresh();

}  // namespace tandem::shim::holdings
