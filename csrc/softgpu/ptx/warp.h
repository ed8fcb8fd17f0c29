// The state of a running warp, and what its block shares. Only the thread that runs the kernel
// touches it.
//
// Divergence. A frame has a stack of paths; the top one runs. A branch at which lanes diverge
// leaves a path that waits at the immediate post-dominator and pushes the two sides on top of it; a
// path that gets there is dropped. A path that reaches a `.sync` instruction waits until the lanes
// that the instruction's mask names have reached it, too, and continues together with them. Lanes
// that have returned or exited are in no path's mask.
#pragma once

#include <cuda.h>

#include <memory>
#include <vector>

#include "program.h"

namespace softgpu::ptx {

struct Path {
  uint32_t pc, reconverge, mask;
  bool waits = false;  // at an instruction that needs lanes of other paths, too
};

struct Frame {
  const Function* function = nullptr;
  const Function* prepared = nullptr;  // the function whose constants the registers hold
  std::unique_ptr<char[]> storage;
  char* registers = nullptr;
  uint32_t capacity = 0;
  uint32_t live = 0;  // lanes that have not returned
  size_t first_path = 0;
  const Instr* call = nullptr;
  uint32_t call_mask = 0;
  uint64_t local_offset = 0;  // where this frame begins in each lane's local memory
};

struct Counters {
  uint64_t instructions = 0;  // counted per thread
  uint64_t flops = 0;
  uint64_t sectors = 0;  // of 32 bytes, to and from global memory
};

struct Block;

enum class WarpState : uint8_t { kReady, kAtBarrier, kAtCluster, kDone };

struct Warp {
  char* registers = nullptr;  // of the running frame
  Block* block = nullptr;
  const Instr* current = nullptr;
  uint32_t index = 0;
  uint32_t lanes = 0;  // mask of the lanes that exist
  uint32_t alive = 0;  // mask of the lanes that have not exited
  uint32_t carry = 0;  // condition code, one bit per lane
  WarpState state = WarpState::kReady;
  uint32_t barrier = 0;  // number of the barrier it waits at
  uint32_t barrier_mask = 0;
  uint32_t at_cluster = 0;     // mask of the lanes that have arrived at the cluster's barrier
  uint64_t cluster_phase = 0;  // Cluster::phase once the barrier opens for the newest arrival
  uint64_t arrived_ns = 0;     // slept_ns at that arrival
  size_t depth = 0;            // number of frames in use
  std::vector<Frame> frames;
  std::vector<Path> paths;
  uint64_t executed = 0;  // instructions of the warp
  uint64_t slept_ns = 0;
  uint32_t watched = 0;  // polling accesses in this turn, since an atomic changed memory

  template <class T>
  T* at(uint32_t offset) const {
    return reinterpret_cast<T*>(registers + offset);
  }
  Frame& frame() { return frames[depth - 1]; }
  // Time since its block began, counting a nanosecond per instruction.
  uint64_t time_ns() const { return executed + slept_ns; }
};

struct Barrier {
  uint32_t arrived = 0;             // threads, rounded up to whole warps
  uint32_t expected = 0;            // 0: all threads of the block
  uint32_t trues = 0, counted = 0;  // bar.red
  uint64_t slept_ns = 0;            // the longest of the warps that arrived
};

struct Launch {
  const Program* program;
  const Function* kernel;
  uint32_t grid[3], block[3];
  const char* params;
  uint32_t dynamic_shared_bytes;
  uint32_t sm_count;
  uint64_t number;                  // %gridid
  uint64_t start_ns = 0;            // on the device's clock: %globaltimer
  uint64_t resident = 1;            // blocks that the device can hold at once
  bool cooperative = false;         // all blocks are resident at once and may wait for each other
  uint32_t cluster[3] = {1, 1, 1};  // size of a cluster in blocks
  const uint32_t* sms = nullptr;    // the SMs it may use; null: 0 to sm_count - 1
  uint64_t together = UINT64_MAX;   // blocks that fit on the SMs that it begins on
};

// %envreg1 and %envreg2 hold the address of this for a cooperative kernel; cooperative groups count
// arrivals in `barrier`.
struct Workspace {
  uint32_t bytes = sizeof(Workspace), barrier = 0;
};

struct Cluster {  // blocks that begin together and keep their places until the last one has ended
  std::vector<Block*> blocks;  // by rank
  uint32_t live = 0;           // blocks that have not ended
  uint64_t phase = 0;          // how often its barrier has opened
  uint64_t slept_ns = 0;       // the longest of the warps it opened for
};

struct Block {
  const Launch* launch = nullptr;
  Workspace* workspace = nullptr;  // only in a cooperative launch
  uint32_t index[3] = {0, 0, 0};
  uint64_t number = 0;
  CUresult error = CUDA_SUCCESS;
  uint64_t begin_ns = 0;  // since the kernel began; later than 0 if earlier blocks held the place
  Counters counters;
  std::vector<Warp> warps;
  Barrier barriers[16];
  Cluster* cluster = nullptr;  // `own_cluster` of the block with rank 0
  Cluster own_cluster;
  uint32_t rank = 0;

  // Shared memory, then the local memory of each thread, within an arena that all blocks share.
  // Everything else in the arena, guard pages included, is out of bounds for this block.
  const char* arena = nullptr;
  uint64_t arena_bytes = 0;
  char* shared = nullptr;
  uint64_t shared_bytes = 0;
  char* local = nullptr;
  uint64_t local_bytes = 0, thread_local_bytes = 0;

  void fail(CUresult why) {
    if (error == CUDA_SUCCESS) error = why;
  }
};

}  // namespace softgpu::ptx
