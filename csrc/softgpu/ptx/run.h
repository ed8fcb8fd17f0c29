// Executes a kernel: blocks in order, the warps of a block in turns.
#pragma once

#include "warp.h"

namespace softgpu::ptx {

// The memory that a launch needs lives here, so that a fault may leave run() at any place.
class Grid {
 public:
  explicit Grid(const Launch& launch);
  ~Grid();
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;

  bool has_memory() const { return block_.arena != nullptr; }
  CUresult run();
  const Counters& counters() const { return block_.counters; }
  // Near which line the last warp stopped, also after a fault; 0 before there was one.
  uint32_t last_line() const {
    return running_ != nullptr && running_->current != nullptr ? running_->current->line : 0;
  }

 private:
  void begin_block(uint64_t number);
  void run_block();

  const Launch launch_;
  Block block_;
  const Warp* running_ = nullptr;
};

// run_warp.cpp. Runs until the warp ends, waits, has an error, or has run so long that others
// should.
void run_warp(Warp& warp);
void begin_warp(Warp& warp);

// print.cpp
bool call_builtin(Warp& warp, const Instr& in, uint32_t mask);

}  // namespace softgpu::ptx
