// Memory pools: the stream-ordered allocator.
//
// A pool belongs to a device and owns an address range; the pages behind it come in segments that
// the ledger has granted. Memory freed in a stream stays with the pool and is reused as soon as the
// free is ordered before the allocation, or such an order may be made; see `order_of`. Memory is
// released when a synchronisation finds more than the release threshold, or on a trim.
#pragma once

#include <map>
#include <set>

#include "api.h"
#include "pool_arena.h"

namespace softgpu {

struct Pool {
  CUmemPoolProps props{};
  int device = 0;
  bool is_default = false;
  bool imported = false;   // lives in another process: cannot allocate here
  bool destroyed = false;  // by the program; goes with its last allocation and free
  uint32_t pins = 0;       // calls that wait and still use it
  int follow_events = 1, opportunistic = 1, internal_dependencies = 1;
  uint64_t release_threshold = 0;
  uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
  uintptr_t base = 0;
  size_t capacity = 0;
  int fd = -1;                                // the file behind it, if it can be shared
  std::map<int, CUmemAccess_flags> access{};  // of other devices
  std::set<size_t> imports{};                 // offsets of allocations that are open here
  PoolArena arena{};
};

Pool* pool_of(Runtime& rt, CUmemoryPool handle);
Pool* new_pool(Runtime& rt, const CUmemPoolProps& props, CUresult* error);
Pool* default_pool(Runtime& rt, int device);
Pool* current_pool(Runtime& rt, int device);

// The two stream-ordered operations. Allocations that a graph owns do not come from here.
CUresult allocate_in_order(StreamCall& on, Pool* pool, size_t bytes, CUdeviceptr* out);
CUresult free_in_order(StreamCall& on, CUdeviceptr pointer);

// cuMemFree of pool memory: the program asserts that nothing uses it any more.
void free_now(Runtime& rt, Range& range);

// Gives back unused memory, down to `keep_bytes`; returns how many bytes.
uint64_t trim(Runtime& rt, Pool* pool, uint64_t keep_bytes);
// Does so for all pools of a device when memory is short.
uint64_t trim_device(Runtime& rt, int device);

// The host has seen the end of everything so far in `stream`; null: in every stream of `context`.
void pools_synchronized(Runtime& rt, const Context* context, const Stream* stream);
// The host has seen the end of an event's newest record.
void pools_saw_event(Runtime& rt, const Event& event);
// Performs the frees whose operations have ended, and deletes destroyed pools that are idle.
void reap_frees(Runtime& rt);
// The last context of a device is gone: frees what its pools held.
void empty_pools(Runtime& rt, int device);

// Keep track of the order between streams, for REUSE_FOLLOW_EVENT_DEPENDENCIES.
void note_record(Runtime& rt, Event* event, Stream* stream);
void note_wait(Runtime& rt, Stream* stream, const Event& event);

}  // namespace softgpu
