#include "physical.h"

#include "holdings.h"
#include "memory.h"

namespace tandem::shim::physical {
namespace {

using holdings::Entry;
using holdings::Kind;
using holdings::Locked;
using holdings::Table;

uint64_t g_newest = 0;  // under the lock of holdings; numbers are never reused

void add_handle(Table& table, CUmemGenericAllocationHandle handle, uint64_t number) {
  Entry* known = table.find(Kind::kHandle, handle);
  if (known && known->owner == number) {
    ++known->count;
    return;
  }
  Entry entry;
  entry.kind = Kind::kHandle;
  entry.key = handle;
  entry.owner = number;
  table.put(entry);
}

void add_memory(CUmemGenericAllocationHandle handle, uint32_t device, uint64_t bytes) {
  const Locked table;
  Entry entry;
  entry.kind = Kind::kPhysical;
  entry.key = ++g_newest;
  entry.bytes = bytes;
  entry.device = static_cast<uint8_t>(device);
  table->put(entry);
  add_handle(*table, handle, entry.key);
}

void hold(Table& table, uint64_t number) {
  if (Entry* memory = table.find(Kind::kPhysical, number)) ++memory->count;
}

void let_go(Table& table, uint64_t number) {
  Entry* held = table.find(Kind::kPhysical, number);
  if (!held || --held->count > 0) return;
  memory::give_back(held->device, held->bytes);
  table.erase(held);
}

// The number of the physical memory mapped at an address inside a mapping; 0 if unknown.
uint64_t number_at(Table& table, CUdeviceptr within) {
  if (const Entry* exact = table.find(Kind::kMapping, within)) return exact->owner;
  uint64_t number = 0;
  table.for_each([&](const Entry& entry) {
    if (entry.kind == Kind::kMapping && within - entry.key < entry.bytes) number = entry.owner;
  });
  return number;
}

}  // namespace

void note_created(CUmemGenericAllocationHandle handle, uint32_t device, uint64_t bytes) {
  add_memory(handle, device, bytes);
}

// The handle is the same when the process imports again what it already has.
void note_imported(CUmemGenericAllocationHandle handle) {
  {
    const Locked table;
    if (Entry* known = table->find(Kind::kHandle, handle)) {
      ++known->count;
      hold(*table, known->owner);
      return;
    }
  }
  add_memory(handle, 0, 0);
}

void note_retained(CUmemGenericAllocationHandle handle, CUdeviceptr within) {
  const Locked table;
  const uint64_t number = number_at(*table, within);
  if (!number) return;
  add_handle(*table, handle, number);
  hold(*table, number);
}

uint64_t begin_release(CUmemGenericAllocationHandle handle) {
  const Locked table;
  Entry* known = table->find(Kind::kHandle, handle);
  if (!known) return 0;
  const uint64_t number = known->owner;
  if (--known->count == 0) table->erase(known);
  return number;
}

void end_release(CUmemGenericAllocationHandle handle, uint64_t number, bool released) {
  if (!number) return;
  const Locked table;
  if (released) let_go(*table, number);
  else add_handle(*table, handle, number);
}

void note_mapped(CUdeviceptr at, uint64_t bytes, CUmemGenericAllocationHandle handle) {
  const Locked table;
  const Entry* known = table->find(Kind::kHandle, handle);
  if (!known) return;
  Entry entry;
  entry.kind = Kind::kMapping;
  entry.key = at;
  entry.owner = known->owner;
  entry.bytes = bytes;
  hold(*table, entry.owner);
  table->put(entry);
}

// Mappings lie end to end where a program unmaps several at once.
void note_unmapped(CUdeviceptr at, uint64_t bytes) {
  const Locked table;
  const CUdeviceptr end = at + bytes;
  while (at < end) {
    Entry* mapping = table->find(Kind::kMapping, at);
    if (!mapping || mapping->bytes == 0) break;
    const uint64_t number = mapping->owner;
    at += mapping->bytes;
    table->erase(mapping);
    let_go(*table, number);
  }
  if (at >= end) return;
  // Some of it was mapped out of the shim's sight: look for the rest one by one.
  for (bool again = true; again;) {
    uint64_t number = 0;
    table->erase_if([&](const Entry& entry) {
      if (number || entry.kind != Kind::kMapping || entry.key - at >= end - at) return false;
      number = entry.owner;
      return true;
    });
    again = number != 0;
    if (number) let_go(*table, number);
  }
}

void keep(CUmemGenericAllocationHandle handle) {
  const Locked table;
  if (const Entry* known = table->find(Kind::kHandle, handle)) hold(*table, known->owner);
}

}  // namespace tandem::shim::physical
