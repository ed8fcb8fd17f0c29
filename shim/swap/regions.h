// Memory that can be moved: allocations of cuMemAlloc, made of reserved addresses and pieces of
// physical memory behind them (CUDA driver manual, "Virtual Memory Management"). The addresses
// stay, the pieces come and go.
//
// allocate, release, range_of and is_lost: inside a Use, from any thread. The rest: the mover,
// while nobody is inside.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace tandem::shim::swap {

// Smaller allocations are packed (slabs.h): a piece has at least 2 MiB.
inline constexpr uint64_t kSmallestRegion = 1 << 20;

struct Piece {
  CUdeviceptr at;
  uint64_t bytes;
  CUmemGenericAllocationHandle handle;  // while it is on the device
  uint64_t context;
  uint32_t home;  // where its bytes are kept on the host; 0 = nowhere yet
  uint32_t device;
  bool resident;
  bool lost;    // its bytes exist nowhere any more, and it never returns to the device
  bool pinned;  // other processes map it, so it stays

  [[nodiscard]] bool can_go() const { return resident && !pinned; }
};

// Names a region to processes that share it; unguessable, so only they have it.
struct Token {
  uint64_t words[2];

  explicit operator bool() const { return (words[0] | words[1]) != 0; }
  friend bool operator==(const Token& one, const Token& other) {
    return one.words[0] == other.words[0] && one.words[1] == other.words[1];
  }
};

// A piece for another process.
struct Exported {
  uint64_t at;  // in the region
  uint64_t bytes;
  int fd;
};

struct Range {
  CUdeviceptr base = 0;
  uint64_t bytes = 0;  // as requested; 0 = not a region
  uint64_t context = 0;
  uint64_t buffer_id = 0;  // 0 = the driver's buffer ID of its first byte
};

// Allocates in the current context, on its device. CUDA_ERROR_NOT_SUPPORTED: the device has no such
// memory. `held` is what the region takes of the device.
CUresult allocate_region(CUdeviceptr* out, uint64_t bytes, uint64_t context, uint32_t device,
                         uint64_t* held);
// CUDA_ERROR_NOT_FOUND: no region begins there. Waits for all work of its context, as cuMemFree
// does, and frees nothing when that fails.
CUresult release_region(CUdeviceptr base);
CUresult release_unused_region(CUdeviceptr base);  // the same for one that no work can touch
// Releases those for which `keep` is false, because their contexts are gone.
void release_regions_unless(bool (*keep)(CUdeviceptr base));
Range range_of(CUdeviceptr address);
// What was in its first piece exists nowhere any more, nor would anything written there.
bool is_lost(CUdeviceptr base);

// From now on the region stays on the device until it is freed, and no longer counts as memory that
// can be moved. Returns its token: `fresh`, or the one that it already has. None: no region begins
// there, or it cannot be shared.
Token pin_region(CUdeviceptr base, const Token& fresh);
// The range that `token` names; no bytes: it is gone. Also called by the helper.
Range pinned_region(const Token& token, uint64_t* reserved);
// Exports its pieces from the `first` on as descriptors, which the caller then owns; returns how
// many. Also called by the helper.
size_t export_pieces(const Token& token, size_t first, Exported* out, size_t room);

// Waits as cuMemFree does before it frees.
CUresult wait_for_work(uint64_t context);

void publish_bytes();
// Of the memory that can be moved.
[[nodiscard]] uint64_t swappable_bytes();
[[nodiscard]] uint64_t resident_bytes();
[[nodiscard]] uint64_t swapped_bytes();

// Gets device memory for the piece and maps it; or unmaps and releases it.
CUresult map_piece(Piece* piece);
CUresult unmap_piece(Piece* piece);
// The piece's contents cannot be recovered: it counts as nothing, and whoever touches it gets an
// error.
void lose_piece(Piece* piece);

[[nodiscard]] size_t piece_count();
Piece& piece(size_t index);

void forget_regions();  // a forked child has none

}  // namespace tandem::shim::swap
