// Memory that can be moved: what cuMemAlloc gave out, made of reserved addresses and pieces of physical
// memory behind them (CUDA driver manual, "Virtual Memory Management"). The addresses stay, the pieces
// come and go.
//
// allocate, release and range_of: inside a Use, from any thread. The rest: the mover, while nobody is
// inside.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace tandem::shim::swap {

// Smaller allocations are packed (slabs.h): a piece is 2 MiB at least.
inline constexpr uint64_t kSmallestRegion = 1 << 20;

struct Piece {
  CUdeviceptr at;
  uint64_t bytes;
  CUmemGenericAllocationHandle handle;  // while it is on the device
  uint64_t context;
  uint32_t home;  // where its bytes go on the host; 0 = nowhere yet
  uint32_t device;
  bool resident;
  bool lost;  // its bytes are nowhere any more, and it is never on the device again
};

struct Range {
  CUdeviceptr base = 0;
  uint64_t bytes = 0;  // as asked for; 0 = not ours
  uint64_t context = 0;
  uint64_t buffer_id = 0;  // 0 = the driver's of its first byte
};

// In the current context, on its device. CUDA_ERROR_NOT_SUPPORTED: the device has no such memory. `held`
// is what it takes of the device.
CUresult allocate_region(CUdeviceptr* out, uint64_t bytes, uint64_t context, uint32_t device,
                         uint64_t* held);
// CUDA_ERROR_NOT_FOUND: not the begin of a region. Waits for all work of its context, as cuMemFree does,
// and frees nothing when that fails.
CUresult release_region(CUdeviceptr base);
// Those for which `keep` says no; of contexts that are gone.
void release_regions_unless(bool (*keep)(CUdeviceptr base));
Range range_of(CUdeviceptr address);

// As cuMemFree does before it frees.
CUresult wait_for_work(uint64_t context);

void publish_bytes();
[[nodiscard]] uint64_t swappable_bytes();
[[nodiscard]] uint64_t resident_bytes();
[[nodiscard]] uint64_t swapped_bytes();

// Gets a piece of device memory for it and maps it; or gives it back.
CUresult map_piece(Piece* piece);
CUresult unmap_piece(Piece* piece);
// What it held cannot be had back: it counts as nothing, and whoever touches it hears of it.
void lose_piece(Piece* piece);

[[nodiscard]] size_t piece_count();
Piece& piece(size_t index);

void forget_regions();  // a forked child has none

}  // namespace tandem::shim::swap
