#include "doomed.h"

#include <atomic>

#include "graph_memory.h"
#include "holdings.h"
#include "memory.h"
#include "place.h"
#include "pool_rows.h"
#include "swappable.h"

namespace tandem::shim::doomed {
namespace {

using holdings::Entry;
using holdings::Kind;
using holdings::Locked;

// Odd, which no context handle is.
std::atomic<uint64_t> g_newest{1};

bool belongs_to_a_context(const Entry& entry) {
  return entry.kind == Kind::kLinear || entry.kind == Kind::kPacked || entry.kind == Kind::kArray ||
         entry.kind == Kind::kMipmapped || entry.kind == Kind::kImported;
}

uint64_t key_of(CUcontext context) { return reinterpret_cast<uint64_t>(context); }

}  // namespace

uint64_t doom(CUcontext context) {
  const uint64_t number = g_newest.fetch_add(2, std::memory_order_relaxed);
  const Locked table;
  table->for_each([&](Entry& entry) {
    if (belongs_to_a_context(entry) && entry.owner == key_of(context)) entry.owner = number;
  });
  return number;
}

uint64_t doom_primary(CUdevice device) {
  const uint64_t number = g_newest.fetch_add(2, std::memory_order_relaxed);
  const Locked table;
  table->for_each([&](Entry& entry) {
    if (!belongs_to_a_context(entry) || entry.device != static_cast<uint8_t>(device)) return;
    if (!table->find(Kind::kContext, entry.owner)) entry.owner = number;
  });
  return number;
}

void finish(uint64_t number, CUcontext context, uint32_t device, bool destroyed) {
  {
    const Locked table;
    if (!destroyed) {
      table->for_each([&](Entry& entry) {
        if (belongs_to_a_context(entry) && entry.owner == number) entry.owner = key_of(context);
      });
      return;
    }
    table->erase_if([&](const Entry& entry) {
      if (!belongs_to_a_context(entry) || entry.owner != number) return false;
      if (entry.kind != Kind::kImported && entry.kind != Kind::kPacked)
        memory::give_back(entry.device, entry.bytes);
      return true;
    });
    if (Entry* known = context ? table->find(Kind::kContext, key_of(context)) : nullptr)
      table->erase(known);
  }
  swap::release_forgotten();
  forget_places();
  pools::context_gone(device);
  graph_memory::refresh(device);
}

uint32_t device_of(CUcontext context) {
  {
    const Locked table;
    if (const Entry* known = table->find(Kind::kContext, key_of(context))) return known->device;
  }
  return place_now().device;
}

void note_attached() {
  const Place place = place_now();
  const Locked table;
  if (Entry* known = table->find(Kind::kContext, place.context)) {
    ++known->count;
    return;
  }
  Entry entry;
  entry.kind = Kind::kContext;
  entry.key = place.context;
  entry.device = static_cast<uint8_t>(place.device);
  entry.count = 2;
  table->put(entry);
}

void note_detached(CUcontext context) {
  const Locked table;
  Entry* known = table->find(Kind::kContext, key_of(context));
  if (known && known->count > 1) --known->count;
}

bool is_last_hold(CUcontext context) {
  const Locked table;
  const Entry* known = table->find(Kind::kContext, key_of(context));
  return !known || known->count == 1;
}

}  // namespace tandem::shim::doomed
