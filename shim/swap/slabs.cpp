#include "slabs.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>

#include "line.h"
#include "memory.h"
#include "mutex.h"
#include "own_array.h"
#include "slab.h"

namespace tandem::shim::swap {
namespace {

// Distinct from those of the driver, which count from 1.
constexpr uint64_t kOwnBufferIds = uint64_t{1} << 63;

struct Held {
  CUdeviceptr base;
  uint64_t context;
  uint32_t device;
  Slab* slab;
};

// Taken before the lock of the regions.
pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
OwnArray<Held> g_slabs;  // by address
size_t g_last = 0;       // index of a slab that had room
uint32_t g_parts = 0;    // handed out so far

size_t place_of(CUdeviceptr address) {
  return static_cast<size_t>(
      std::upper_bound(g_slabs.begin(), g_slabs.end(), address,
                       [](CUdeviceptr wanted, const Held& held) { return wanted < held.base; }) -
      g_slabs.begin());
}

// The slab that contains the byte.
Held* slab_at(CUdeviceptr address) {
  const size_t after = place_of(address);
  if (after == 0 || address - g_slabs[after - 1].base >= Slab::kBytes) return nullptr;
  return &g_slabs[after - 1];
}

bool take_from(Held& held, uint64_t bytes, CUdeviceptr* out) {
  uint32_t at = 0;
  if (!held.slab->take(static_cast<uint32_t>(bytes), g_parts + 1, &at)) return false;
  ++g_parts;
  *out = held.base + at;
  return true;
}

bool take_from_any(uint64_t bytes, uint64_t context, CUdeviceptr* out) {
  const HoldsMutex lock(&g_lock);
  for (size_t i = 0; i < g_slabs.size(); ++i) {
    const size_t at = (g_last + i) % g_slabs.size();
    if (g_slabs[at].context != context || is_lost(g_slabs[at].base)) continue;
    if (!take_from(g_slabs[at], bytes, out)) continue;
    g_last = at;
    return true;
  }
  return false;
}

Slab* new_slab() {
  void* at =
      mmap(nullptr, sizeof(Slab), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<Slab*>(at);
}

void erase(size_t at) {
  munmap(g_slabs[at].slab, sizeof(Slab));
  g_slabs.erase(at);
  g_last = 0;
}

// Adds a slab with a first part in it. The limit already counts it.
bool add_slab(uint64_t bytes, uint64_t context, uint32_t device, CUdeviceptr* out) {
  Held held{0, context, device, new_slab()};
  if (!held.slab) return false;
  uint64_t counted = 0;
  if (allocate_region(&held.base, Slab::kBytes, context, device, &counted) == CUDA_SUCCESS) {
    const HoldsMutex lock(&g_lock);
    const size_t at = place_of(held.base);
    if (g_slabs.insert(at, held)) {
      g_last = at;
      return take_from(g_slabs[at], bytes, out);
    }
  }
  if (held.base) release_region(held.base);
  munmap(held.slab, sizeof(Slab));
  return false;
}

// Takes out of the table an empty slab of the device, if there are more than `kept`, or one that is
// of no use; 0 = there is none.
CUdeviceptr take_out_empty(uint32_t device, size_t kept) {
  const HoldsMutex lock(&g_lock);
  for (size_t at = 0; at < g_slabs.size(); ++at) {
    const Held& held = g_slabs[at];
    if (held.device != device || !held.slab->is_empty()) continue;
    if (!is_lost(held.base) && kept-- > 0) continue;
    const CUdeviceptr base = held.base;
    erase(at);
    return base;
  }
  return 0;
}

void drop_empty(uint32_t device, size_t kept) {
  while (const CUdeviceptr base = take_out_empty(device, kept)) {
    // Whatever was in it waited for its work before it was freed.
    if (release_unused_region(base) == CUDA_SUCCESS) memory::give_back(device, Slab::kBytes);
  }
}

}  // namespace

CUresult pack(CUdeviceptr* out, uint64_t bytes, uint64_t context, uint32_t device) {
  if (take_from_any(bytes, context, out)) return CUDA_SUCCESS;
  if (line::is_ahead()) return CUDA_ERROR_NOT_SUPPORTED;  // others wait for the device's memory
  if (!memory::take(device, Slab::kBytes, memory::bound_bytes())) return CUDA_ERROR_NOT_SUPPORTED;
  if (add_slab(bytes, context, device, out)) return CUDA_SUCCESS;
  memory::give_back(device, Slab::kBytes);
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult unpack(CUdeviceptr address) {
  Range range;
  if (!find_packed(address, &range) || !range.bytes || range.base != address)
    return CUDA_ERROR_NOT_FOUND;
  const CUresult waited = wait_for_work(range.context);
  return waited == CUDA_SUCCESS ? unpack_unused(address) : waited;
}

CUresult unpack_unused(CUdeviceptr address) {
  uint32_t device = 0;
  {
    const HoldsMutex lock(&g_lock);
    const Held* held = slab_at(address);
    if (!held || !held->slab->give_back(static_cast<uint32_t>(address - held->base)))
      return CUDA_ERROR_NOT_FOUND;  // another thread has freed it, too
    if (!held->slab->is_empty()) return CUDA_SUCCESS;
    device = held->device;
  }
  drop_empty(device, 1);
  return CUDA_SUCCESS;
}

bool find_packed(CUdeviceptr address, Range* range) {
  const HoldsMutex lock(&g_lock);
  const Held* held = slab_at(address);
  if (!held) return false;
  const Slab::Part part = held->slab->part_at(static_cast<uint32_t>(address - held->base));
  *range = {held->base + part.at, part.bytes, held->context, kOwnBufferIds | part.number};
  return true;
}

void give_up_empty_slab(uint32_t device) { drop_empty(device, 0); }

void forget_slabs_unless(bool (*keep)(CUdeviceptr address)) {
  const HoldsMutex lock(&g_lock);
  for (size_t at = 0; at < g_slabs.size();) {
    const Held& held = g_slabs[at];
    if (held.slab->any_part([&](const Slab::Part& part) { return keep(held.base + part.at); })) {
      ++at;
      continue;
    }
    memory::give_back(held.device, Slab::kBytes);
    erase(at);
  }
}

void forget_slabs() {
  pthread_mutex_init(&g_lock, nullptr);
  for (Held& held : g_slabs) munmap(held.slab, sizeof(Slab));
  g_slabs.clear();
  g_last = 0;
}

}  // namespace tandem::shim::swap
