// Memory pools: the stream-ordered allocator.
//
// What counts is what a pool has reserved of the device, not what the program has allocated in it:
// a pool keeps freed memory until a synchronisation finds more of it than its release threshold.
// The driver is asked for that amount after each allocation, after a trim, and at the end of waits
// for as long as a pool may give something back. Before an allocation, the pool's growth is
// predicted on the safe side: none when the pool has that much unused, else the whole allocation.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

namespace tandem::shim::pools {

// A pool is known by its row. kNoRow: there are more pools than rows, and the pool's allocations
// count like plain ones.
inline constexpr uint32_t kNoRow = ~uint32_t{0};
inline constexpr uint32_t kForeign = ~uint32_t{0} - 1;  // of the host or another process

uint32_t find(CUmemoryPool pool, uint32_t device_if_new);
uint32_t current_of(uint32_t device);  // the one that cuMemAllocAsync uses
void forget_current();                 // cuDeviceSetMemPool

// cuMemPoolCreate, and pools that come from elsewhere.
void note_created(CUmemoryPool pool, const CUmemPoolProps& props);
void note_foreign(CUmemoryPool pool);
void set_threshold(CUmemoryPool pool, uint64_t bytes);

// Bracket cuMemPoolDestroy: the handle is unknown from before the call on.
uint32_t begin_destroy(CUmemoryPool pool);
void end_destroy(uint32_t row, CUmemoryPool pool, bool destroyed);

// Bracket an allocation. begin: false when refused. end: returns what to tell the program, which is
// OUT_OF_MEMORY when the pool unexpectedly grew beyond the limit; then the memory is freed again in
// its stream.
struct Growth {
  uint32_t row;
  uint32_t device;
  uint64_t bytes;
};
Growth growth_of(uint32_t row, uint64_t bytes);  // as far as it can be predicted
bool begin_allocation(uint32_t row, uint64_t bytes, Growth* growth);
CUresult end_allocation(const Growth& growth, CUresult result, CUdeviceptr address, uint64_t bytes,
                        CUstream stream);

// After the driver has taken an allocation back.
void note_freed(uint32_t row, uint64_t bytes);

// Memory that belongs to no pool and is freed when a stream gets there: counted until the next
// wait.
void free_later(uint32_t device, uint64_t bytes);

void refresh(uint32_t row);
void refresh_if_known(CUmemoryPool pool);
void refresh_all(uint32_t device);
void trim(uint32_t device);
// A context of the device is gone; if it was the last one, so is all that the device's pools held.
void context_gone(uint32_t device);

extern std::atomic<bool> g_unsettled;  // relaxed: the next wait may return memory
void settle();
inline void after_wait() {
  if (__builtin_expect(g_unsettled.load(std::memory_order_relaxed), 0)) settle();
}

void start_afresh();

}  // namespace tandem::shim::pools
