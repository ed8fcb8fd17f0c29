// Executes a kernel: blocks in order, the warps of a block in turns. A block that only watches
// memory gives way: another one begins, or goes on, beside it, so blocks may wait for each other.
#pragma once

#include <deque>
#include <functional>
#include <queue>
#include <vector>

#include "warp.h"

namespace softgpu::ptx {

// The memory that a launch needs lives here, so that a fault may leave run() at any place.
class Grid {
 public:
  explicit Grid(const Launch& launch);
  ~Grid();
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;

  bool has_memory() const { return arena_ != nullptr; }
  CUresult run();
  Counters counters() const;
  // How long it lasts whatever its instructions cost: until the last block has slept. 0: none did.
  uint64_t asleep_ns() const { return sleeps_ ? last_end_ns_ : 0; }
  // Near which line the last warp stopped, also after a fault; 0 before there was one.
  uint32_t last_line() const {
    return running_ != nullptr && running_->current != nullptr ? running_->current->line : 0;
  }

 private:
  enum class Turn : uint8_t { kWaits, kHeld, kEnded, kFailed };  // kHeld: nobody in it could run

  void reserve();
  bool add_place();
  Block* begin_next();
  uint64_t take_places();
  void begin(Block& block, Cluster& cluster, uint64_t begin_ns);
  void end(Block& block);
  Turn run_block(Block& block);
  static Turn finish(Block& block);

  const Launch launch_;
  const uint64_t count_;    // blocks of the grid
  const uint64_t cluster_;  // blocks of a cluster
  uint64_t begun_ = 0;
  const uint64_t thread_local_bytes_;
  uint64_t shared_pages_ = 0, local_pages_ = 0;  // of a place, in bytes
  char* arena_ = nullptr;
  uint64_t place_bytes_ = 0, most_places_ = 1;
  std::deque<Block> places_;  // memory for a block each, and the block that is in it
  std::vector<Block*> free_;
  std::deque<Block*> waiting_;
  // When blocks that have ended left a place to the next ones, since the kernel began.
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> ends_;
  uint64_t last_end_ns_ = 0;
  bool sleeps_ = false;
  Workspace workspace_;
  const Warp* running_ = nullptr;
};

inline constexpr uint32_t kPatience = 32;  // watching accesses until others get their turn

// run_warp.cpp. Runs until the warp ends, waits, has an error, or has run so long that others
// should.
void run_warp(Warp& warp);
void begin_warp(Warp& warp);

// print.cpp
bool call_builtin(Warp& warp, const Instr& in, uint32_t mask);

}  // namespace softgpu::ptx
