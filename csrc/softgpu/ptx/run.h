// Executes a kernel: blocks in order, the warps of a block in turns. A block that only polls memory
// yields to another one, which begins or continues beside it, so blocks may wait for each other.
#pragma once

#include <deque>
#include <functional>
#include <queue>
#include <vector>

#include "warp.h"

namespace softgpu::ptx {

// Owns the memory that a launch needs, so that a fault may leave run() at any point.
class Grid {
 public:
  explicit Grid(const Launch& launch);
  ~Grid();
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;

  bool has_memory() const { return arena_ != nullptr; }
  CUresult run();
  Counters counters() const;
  // Lower bound on the kernel's duration, whatever its instructions cost: when the last block
  // ended, sleeps included. 0 if no block slept.
  uint64_t asleep_ns() const { return sleeps_ ? last_end_ns_ : 0; }
  // The line near which the last warp stopped, also after a fault; 0 if no warp has run.
  uint32_t last_line() const {
    return running_ != nullptr && running_->current != nullptr ? running_->current->line : 0;
  }

 private:
  enum class Turn : uint8_t { kWaits, kHeld, kEnded, kFailed };  // kHeld: no warp of it could run

  void reserve();
  bool add_place();
  Block* begin_next();
  uint64_t take_places();
  void begin(Block& block, Cluster& cluster, uint64_t begin_ns);
  void end(Block& block);
  Turn run_block(Block& block);
  static Turn finish(Block& block);

  const Launch launch_;
  const uint64_t count_;    // blocks in the grid
  const uint64_t cluster_;  // blocks in a cluster
  uint64_t begun_ = 0;
  const uint64_t thread_local_bytes_;
  uint64_t shared_pages_ = 0, local_pages_ = 0;  // of one place: whole pages, in bytes
  char* arena_ = nullptr;
  uint64_t place_bytes_ = 0, most_places_ = 1;
  std::deque<Block> places_;  // each has memory for one block, and the block that is in it
  std::vector<Block*> free_;
  std::deque<Block*> waiting_;
  // When the blocks ended whose places are free for the next ones, in ns since the kernel began.
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> ends_;
  uint64_t last_end_ns_ = 0;
  bool sleeps_ = false;
  Workspace workspace_;
  const Warp* running_ = nullptr;
};

inline constexpr uint32_t kPatience = 32;  // polling accesses before others get their turn

// run_warp.cpp. Runs until the warp ends, waits, has an error or has used up its turn.
void run_warp(Warp& warp);
void begin_warp(Warp& warp);

// print.cpp
bool call_builtin(Warp& warp, const Instr& in, uint32_t mask);

}  // namespace softgpu::ptx
