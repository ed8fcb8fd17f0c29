// Memory pools: the stream-ordered allocator.
//
// What counts is what a pool has reserved of the device, not what the program has allocated in it: a
// pool keeps what was freed until a synchronisation finds more than its release threshold. The
// driver is asked how much that is after each allocation, after a trim, and at the end of waits
// as long as a pool may give something back. Before an allocation its growth is foretold, on the
// safe side: none when the pool has that much unused, else the whole allocation.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

namespace tandem::shim::pools {

// What a pool is known by is its row.
inline constexpr uint32_t kNoRow = ~uint32_t{0};        // more pools than rows: count like plain
inline constexpr uint32_t kForeign = ~uint32_t{0} - 1;  // of the host or another process

uint32_t find(CUmemoryPool pool, uint32_t device_if_new);
uint32_t current_of(uint32_t device);  // that cuMemAllocAsync uses
void forget_current();                 // cuDeviceSetMemPool

// cuMemPoolCreate, and pools that come from elsewhere.
void note_created(CUmemoryPool pool, const CUmemPoolProps& props);
void note_foreign(CUmemoryPool pool);
void set_threshold(CUmemoryPool pool, uint64_t bytes);

// Around cuMemPoolDestroy: the handle is unknown from before the call on.
uint32_t begin_destroy(CUmemoryPool pool);
void end_destroy(uint32_t row, CUmemoryPool pool, bool destroyed);

// Around an allocation. begin: false when refused. end: what the program is told, OUT_OF_MEMORY when
// the pool grew beyond the limit against expectation; then the memory is freed again in its stream.
struct Growth {
  uint32_t row;
  uint32_t device;
  uint64_t bytes;
};
Growth growth_of(uint32_t row, uint64_t bytes);  // as far as it can be foretold
bool begin_allocation(uint32_t row, uint64_t bytes, Growth* growth);
CUresult end_allocation(const Growth& growth, CUresult result, CUdeviceptr address, uint64_t bytes,
                        CUstream stream);

// After the driver took an allocation back.
void note_freed(uint32_t row, uint64_t bytes);

// Memory that is no pool's and goes when a stream gets there: counted until the next wait.
void free_later(uint32_t device, uint64_t bytes);

void refresh(uint32_t row);
void refresh_if_known(CUmemoryPool pool);
void refresh_all(uint32_t device);
void trim(uint32_t device);
// A context of the device is gone, and with the last one all that its pools held.
void context_gone(uint32_t device);

extern std::atomic<bool> g_unsettled;  // relaxed: something may be given back at the next wait
void settle();
inline void after_wait() {
  if (__builtin_expect(g_unsettled.load(std::memory_order_relaxed), 0)) settle();
}

void start_afresh();

}  // namespace tandem::shim::pools
