// Memory that can be moved: what cuMemAlloc gave out, made of reserved addresses and pieces of physical
// memory behind them (CUDA driver manual, "Virtual Memory Management"). The addresses stay, the pieces
// come and go.
//
// allocate, release, range_of and is_lost: inside a Use, from any thread. The rest: the mover, while nobody is
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
  bool pinned;  // others map it: it stays

  [[nodiscard]] bool can_go() const { return resident && !pinned; }
};

// What names a region to processes that share it: whoever does not have it cannot guess it.
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
CUresult release_unused_region(CUdeviceptr base);  // the same of one that no work can touch
// Those for which `keep` says no; of contexts that are gone.
void release_regions_unless(bool (*keep)(CUdeviceptr base));
Range range_of(CUdeviceptr address);
// What was in its first piece is nowhere any more, and nor would be what is put there.
bool is_lost(CUdeviceptr base);

// From now on it stays on the device until it is freed, and is no memory that can be moved any more. Its
// token: `fresh`, or the one it has already. None: no region begins there, or it cannot be shared.
Token pin_region(CUdeviceptr base, const Token& fresh);
// What `token` names; no bytes: nothing any more. Helper, too.
Range pinned_region(const Token& token, uint64_t* reserved);
// Descriptors, which are the caller's, of its pieces from the `first` on: how many. Helper, too.
size_t export_pieces(const Token& token, size_t first, Exported* out, size_t room);

// As cuMemFree does before it frees.
CUresult wait_for_work(uint64_t context);

void publish_bytes();
// Of what can be moved.
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
