#include "pool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "graph_memory.h"
#include "ipc.h"
#include "memory.h"

namespace softgpu {
namespace {

bool all_done(const Runtime& rt, const std::vector<uint64_t>& ops) {
  return std::none_of(ops.begin(), ops.end(), [&](uint64_t op) { return rt.live(op); });
}

char* at(const Pool& pool, size_t offset) { return reinterpret_cast<char*>(pool.base + offset); }

bool commit(const Pool& pool, size_t offset, size_t bytes) {
  const bool shared = pool.fd >= 0;
  return mmap(at(pool, offset), bytes, PROT_READ | PROT_WRITE,
              MAP_FIXED | MAP_NORESERVE | (shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS),
              pool.fd, shared ? static_cast<off_t>(offset) : 0) != MAP_FAILED;
}

void decommit(const Pool& pool, size_t offset, size_t bytes) {
  mmap(at(pool, offset), bytes, PROT_NONE, MAP_FIXED | MAP_NORESERVE | MAP_PRIVATE | MAP_ANONYMOUS,
       -1, 0);
  if (pool.fd >= 0) {
    fallocate(pool.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
  }
}

void release_segment(Runtime& rt, Pool* pool, size_t offset) {
  const PoolArena::Segment segment = pool->arena.segments().at(offset);
  decommit(*pool, offset, segment.bytes);
  pool->arena.forget(offset);
  pool->reserved -= segment.bytes;
  rt.post(proto::Type::kMemRelease, proto::MemRelease{{}, segment.allocation});
  if (!rt.is_virtual()) rt.flush();
}

void delete_pool(Runtime& rt, Pool* pool) {
  rt.pools.erase(std::find(rt.pools.begin(), rt.pools.end(), pool));
  munmap(at(*pool, 0), pool->capacity);
  if (pool->fd >= 0) close(pool->fd);
  delete pool;
}

// Whether the order that reusing freed memory needs is given, can be added, or neither.
enum class Order { kNone, kPending, kGiven };

Order order_of(const Runtime& rt, const Pool& pool, const Stream& stream, const FreedIn& freed) {
  if (freed.stream == 0 || freed.stream == stream.number) return Order::kGiven;
  if (pool.opportunistic && all_done(rt, freed.after)) return Order::kGiven;
  if (pool.follow_events) {
    const bool same_context = freed.context == stream.context->number;
    if (same_context && freed.legacy && stream.blocking()) return Order::kGiven;
    if (same_context && freed.blocking && stream.legacy) return Order::kGiven;
    const auto seen = stream.comes_after.find(freed.stream);
    if (seen != stream.comes_after.end() && seen->second > freed.position) return Order::kGiven;
  }
  return pool.internal_dependencies ? Order::kPending : Order::kNone;
}

// The smallest free part that is large enough and has that order; the end if there is none.
PoolArena::FreeMap::const_iterator best_fit(const Runtime& rt, const Pool& pool,
                                            const Stream& stream, size_t bytes, Order order) {
  const auto& parts = pool.arena.free_parts();
  auto best = parts.end();
  for (auto it = parts.begin(); it != parts.end(); ++it) {
    if (it->second.bytes < bytes) continue;
    if (best != parts.end() && best->second.bytes <= it->second.bytes) continue;
    if (order_of(rt, pool, stream, it->second.freed) == order) best = it;
  }
  return best;
}

uint64_t most_reserved(const Pool& pool) {
  return pool.props.maxSize ? round_up(pool.props.maxSize, kPoolGranule) : UINT64_MAX;
}

// Adds one segment; releases the lock while it asks.
CUresult grow(StreamCall& on, Pool* pool, size_t bytes) {
  Runtime& rt = on.call.rt;
  const size_t whole = round_up(bytes, kPoolGranule);
  size_t offset = 0;
  if (whole > most_reserved(*pool) || pool->reserved > most_reserved(*pool) - whole ||
      !pool->arena.claim(whole, pool->capacity, &offset)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  pool->reserved += whole;  // now, so that others who ask meanwhile see it
  ++pool->pins;
  uint64_t allocation = 0;
  CUresult result =
      reserve_memory(on.call, whole, pool->device, proto::MemKind::kLinear, &allocation);
  --pool->pins;
  if (result == CUDA_SUCCESS && !commit(*pool, offset, whole)) {
    rt.post(proto::Type::kMemRelease, proto::MemRelease{{}, allocation});
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS) {
    pool->reserved -= whole;
    pool->arena.forget(offset);
    return result;
  }
  pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
  pool->arena.back(offset, allocation);
  return CUDA_SUCCESS;
}

CUdeviceptr hand_out(Runtime& rt, Pool* pool, Context* context, size_t bytes,
                     PoolArena::FreeMap::const_iterator part) {
  const size_t offset = part->first, whole = round_up(bytes, kPoolAlignment);
  pool->arena.take(part, whole);
  pool->used += whole;
  pool->used_high = std::max(pool->used_high, pool->used);
  Range range{pool->base + offset, bytes, RangeKind::kDevice, context, pool->device};
  range.pool = pool;
  range.id = rt.next_number();
  rt.ranges.emplace(range.begin, std::move(range));
  return pool->base + offset;
}

FreedIn freed_here(const Runtime& rt, const Stream& stream) {
  return {stream.number,     stream.context->number, stream.legacy,
          stream.blocking(), stream.last_op,         rt.frontier_of(&stream)};
}

void take_back(Pool* pool, const Range& range, FreedIn freed) {
  pool->used -= pool->arena.give_back(range.begin - pool->base, std::move(freed));
}

void release_excess(Runtime& rt, Pool* pool) {
  if (pool->imported || pool->reserved <= pool->release_threshold) return;
  trim(rt, pool, pool->release_threshold);
}

void forget_import(const Range& range) {
  range.pool->imports.erase(range.begin - range.pool->base);
}

bool idle(const Runtime& rt, const Pool& pool) {
  if (pool.pins > 0 || pool.arena.used_count() > 0 || !pool.imports.empty()) return false;
  const auto& parts = pool.arena.free_parts();
  return std::all_of(parts.begin(), parts.end(),
                     [&](const auto& part) { return all_done(rt, part.second.freed.after); });
}

}  // namespace

Pool* pool_of(Runtime& rt, CUmemoryPool handle) {
  const auto found = std::find(rt.pools.begin(), rt.pools.end(), reinterpret_cast<Pool*>(handle));
  return found == rt.pools.end() || (*found)->destroyed ? nullptr : *found;
}

Pool* new_pool(Runtime& rt, const CUmemPoolProps& props, CUresult* error) {
  auto* pool = new Pool;
  pool->props = props;
  pool->device = props.location.id;
  // Room for gaps between segments; addresses cost nothing.
  const auto& device = rt.device.device[props.location.id];
  pool->capacity = round_up(4 * device.memory_bytes, kPoolGranule);
  void* pages =
      mmap(nullptr, pool->capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  pool->base = reinterpret_cast<uintptr_t>(pages);
  if (pages != MAP_FAILED && props.handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    pool->fd = make_memory_file(rt, "pool", props.location.id, 0, pool->capacity);
    if (pool->fd < 0) {
      munmap(pages, pool->capacity);
      pages = MAP_FAILED;
    }
  }
  if (pages == MAP_FAILED) {
    delete pool;
    *error = CUDA_ERROR_OUT_OF_MEMORY;
    return nullptr;
  }
  rt.pools.push_back(pool);
  return pool;
}

Pool* default_pool(Runtime& rt, int device) {
  for (Pool* pool : rt.pools) {
    if (pool->is_default && pool->device == device) return pool;
  }
  CUmemPoolProps props{};
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  props.location.id = device;
  CUresult error;
  Pool* pool = new_pool(rt, props, &error);
  if (pool) pool->is_default = true;
  return pool;
}

Pool* current_pool(Runtime& rt, int device) {
  const auto set = rt.current_pools.find(device);
  return set == rt.current_pools.end() ? default_pool(rt, device) : set->second;
}

CUresult allocate_in_order(StreamCall& on, Pool* pool, size_t bytes, CUdeviceptr* out) {
  Runtime& rt = on.call.rt;
  Stream* stream = on.stream;
  if (!pool) return CUDA_ERROR_OUT_OF_MEMORY;
  if (stream->capture) return capture_alloc(on, *pool, bytes, out);
  if (!out || bytes == 0 || pool->imported) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > pool->capacity) return CUDA_ERROR_OUT_OF_MEMORY;
  const size_t whole = round_up(bytes, kPoolAlignment);
  const auto nothing = pool->arena.free_parts().end();
  auto part = best_fit(rt, *pool, *stream, whole, Order::kGiven);
  while (part == nothing) {
    const CUresult grown = grow(on, pool, whole);
    if (grown == CUDA_ERROR_OUT_OF_MEMORY) break;
    if (grown != CUDA_SUCCESS) return grown;
    // The lock was released meanwhile: the stream may be gone, and so may the new memory.
    if (!rt.streams.count(stream)) return CUDA_ERROR_INVALID_HANDLE;
    part = best_fit(rt, *pool, *stream, whole, Order::kGiven);
  }
  if (part == nothing) {
    part = best_fit(rt, *pool, *stream, whole, Order::kPending);
    if (part == nothing) return CUDA_ERROR_OUT_OF_MEMORY;
    rt.submit(stream, Work{}, part->second.freed.after);
  }
  *out = hand_out(rt, pool, stream->context, bytes, part);
  return CUDA_SUCCESS;
}

CUresult free_in_order(StreamCall& on, CUdeviceptr pointer) {
  Runtime& rt = on.call.rt;
  if (on.stream->capture) return capture_free(on, pointer);
  CUresult of_graph;
  if (free_graph_memory(rt, pointer, &of_graph)) return of_graph;
  const auto found = rt.ranges.find(pointer);
  if (found == rt.ranges.end() || found->second.kind != RangeKind::kDevice ||
      found->second.opens > 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Range range = std::move(found->second);
  rt.ranges.erase(found);
  if (range.pool && range.pool->imported) {
    forget_import(range);
  } else if (range.pool) {
    take_back(range.pool, range, freed_here(rt, *on.stream));
  } else {
    rt.late_frees.push_back({std::move(range), rt.frontier_of(on.stream)});
  }
  reap_frees(rt);
  return CUDA_SUCCESS;
}

void free_now(Runtime& rt, Range& range) {
  if (range.pool->imported) {
    forget_import(range);
  } else {
    take_back(range.pool, range, {});
  }
  rt.ranges.erase(range.begin);
  reap_frees(rt);
}

uint64_t trim(Runtime& rt, Pool* pool, uint64_t keep_bytes) {
  // Without OPPORTUNISTIC, an end that the host has not waited for must not be noticed.
  if (pool->opportunistic || pool->destroyed) {
    pool->arena.settle([&](const FreedIn& freed) { return all_done(rt, freed.after); });
  }
  std::vector<std::pair<size_t, size_t>> unused;
  for (const auto& [offset, segment] : pool->arena.segments()) {
    if (segment.allocation == 0 || !pool->arena.wholly_free(offset, segment.bytes)) continue;
    unused.emplace_back(offset, segment.bytes);
  }
  uint64_t released = 0;
  for (const auto& [offset, bytes] : unused) {
    if (pool->reserved < keep_bytes || pool->reserved - keep_bytes < bytes) continue;
    release_segment(rt, pool, offset);
    released += bytes;
  }
  return released;
}

uint64_t trim_device(Runtime& rt, int device) {
  uint64_t released = 0;
  for (Pool* pool : rt.pools) {
    if (pool->device == device && !pool->imported) released += trim(rt, pool, 0);
  }
  return released;
}

void pools_synchronized(Runtime& rt, const Context* context, const Stream* stream) {
  for (Pool* pool : rt.pools) {
    pool->arena.settle([&](const FreedIn& freed) {
      const bool seen = stream ? freed.stream == stream->number : freed.context == context->number;
      return seen && all_done(rt, freed.after);
    });
    release_excess(rt, pool);
  }
  reap_frees(rt);
}

void pools_saw_event(Runtime& rt, const Event& event) {
  for (Pool* pool : rt.pools) {
    pool->arena.settle([&](const FreedIn& freed) {
      return freed.stream == event.stream && freed.position < event.op && all_done(rt, freed.after);
    });
    release_excess(rt, pool);
  }
}

void reap_frees(Runtime& rt) {
  for (auto it = rt.late_frees.begin(); it != rt.late_frees.end();) {
    if (!all_done(rt, it->after)) {
      ++it;
      continue;
    }
    unmap_range(it->range);
    rt.post(proto::Type::kMemRelease, proto::MemRelease{{}, it->range.allocation});
    it = rt.late_frees.erase(it);
  }
  for (size_t i = rt.pools.size(); i-- > 0;) {
    Pool* pool = rt.pools[i];
    if (!pool->destroyed || !idle(rt, *pool)) continue;
    trim(rt, pool, 0);
    delete_pool(rt, pool);
  }
}

void empty_pools(Runtime& rt, int device) {
  for (auto it = rt.ranges.begin(); it != rt.ranges.end();) {
    Range& range = it->second;
    const bool ours = range.pool && range.device == device;
    if (ours && range.pool->imported) forget_import(range);
    if (ours && !range.pool->imported) take_back(range.pool, range, {});
    it = ours ? rt.ranges.erase(it) : std::next(it);
  }
  trim_device(rt, device);
  reap_frees(rt);
}

void note_record(Runtime& rt, Event* event, Stream* stream) {
  event->stream = stream->number;
  if (rt.pools.empty()) return;
  event->comes_after = stream->comes_after;
  event->comes_after[stream->number] = event->op;
}

void note_wait(Runtime& rt, Stream* stream, const Event& event) {
  if (rt.pools.empty()) return;
  for (const auto& [other, op] : event.comes_after) {
    uint64_t& known = stream->comes_after[other];
    known = std::max(known, op);
  }
}

}  // namespace softgpu
