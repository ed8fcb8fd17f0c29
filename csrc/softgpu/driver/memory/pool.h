// Memory pools: the stream-ordered allocator.
//
// A pool belongs to a device and owns a stretch of addresses; pages behind them come in segments that
// the ledger has agreed to. Memory freed in a stream stays with the pool and is used again
// as soon as an order between the free and the allocation exists, or may be made; see `order_of`.
// Memory goes back when a synchronisation finds more than the release threshold, or on a trim.
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
  bool imported = false;   // lives in another process: no allocations from here
  bool destroyed = false;  // by the program; goes with the last allocation and free
  uint32_t pins = 0;       // calls that are waiting with it in hand
  int follow_events = 1, opportunistic = 1, internal_dependencies = 1;
  uint64_t release_threshold = 0;
  uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
  uintptr_t base = 0;
  size_t capacity = 0;
  int fd = -1;                         // the file behind it, when it can be shared
  std::map<int, CUmemAccess_flags> access{};  // of other devices
  std::set<size_t> imports{};                 // offsets of allocations that are open here
  PoolArena arena{};
};

Pool* pool_of(Runtime& rt, CUmemoryPool handle);
Pool* new_pool(Runtime& rt, const CUmemPoolProps& props, CUresult* error);
Pool* default_pool(Runtime& rt, int device);
Pool* current_pool(Runtime& rt, int device);

// The two operations of a stream. An allocation that a graph owns comes from elsewhere.
CUresult allocate_in_order(StreamCall& on, Pool* pool, size_t bytes, CUdeviceptr* out);
CUresult free_in_order(StreamCall& on, CUdeviceptr pointer);

// cuMemFree of memory from a pool: the program says that nothing uses it any more.
void free_now(Runtime& rt, Range& range);

// Give memory back that nobody uses, down to `keep_bytes`; how much it was.
uint64_t trim(Runtime& rt, Pool* pool, uint64_t keep_bytes);
// Of all pools of a device: memory is short.
uint64_t trim_device(Runtime& rt, int device);

// The host has seen everything before here end in `stream`; null: in every stream of `context`.
void pools_synchronized(Runtime& rt, const Context* context, const Stream* stream);
// The host has seen the newest record of an event.
void pools_saw_event(Runtime& rt, const Event& event);
// Whether anything that waited for the end of operations can go.
void reap_frees(Runtime& rt);
// The last context of a device is gone, and with it what its pools held.
void empty_pools(Runtime& rt, int device);

// Who comes after whom, for REUSE_FOLLOW_EVENT_DEPENDENCIES.
void note_record(Runtime& rt, Event* event, Stream* stream);
void note_wait(Runtime& rt, Stream* stream, const Event& event);

}  // namespace softgpu
