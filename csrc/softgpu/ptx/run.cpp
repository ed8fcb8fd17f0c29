#include "run.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace softgpu::ptx {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kUnknownDepthBytes = 64 << 10;  // recursion, calls through pointers

uint64_t pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Local memory of the deepest chain of calls.
uint64_t deepest(const Function& function, std::set<const Function*>* path) {
  if (!path->insert(&function).second) return kUnknownDepthBytes;
  uint64_t below = function.calls_unknown ? kUnknownDepthBytes : 0;
  for (const Function* callee : function.callees) below = std::max(below, deepest(*callee, path));
  path->erase(&function);
  return std::min(function.frame_bytes + below, 8 * kUnknownDepthBytes);
}

}  // namespace

Grid::Grid(const Launch& launch) : launch_(launch) {
  std::set<const Function*> path;
  const uint32_t threads = launch.block[0] * launch.block[1] * launch.block[2];
  const uint32_t warps = (threads + kLanes - 1) / kLanes;
  block_.launch = &launch_;
  block_.shared_bytes = uint64_t{launch.program->shared_bytes} + launch.dynamic_shared_bytes;
  block_.thread_local_bytes = deepest(*launch.kernel, &path);
  block_.local_bytes = block_.thread_local_bytes * warps * kLanes;
  const uint64_t shared_pages = pages(block_.shared_bytes), local_pages = pages(block_.local_bytes);
  block_.arena_bytes = shared_pages + local_pages + 3 * kPage;
  void* arena = mmap(nullptr, block_.arena_bytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena == MAP_FAILED) return;
  block_.arena = static_cast<char*>(arena);
  block_.shared = block_.arena + kPage;
  block_.local = block_.shared + shared_pages + kPage;
  if (shared_pages != 0) mprotect(block_.shared, shared_pages, PROT_READ | PROT_WRITE);
  if (local_pages != 0) mprotect(block_.local, local_pages, PROT_READ | PROT_WRITE);
  block_.warps.resize(warps);
  for (uint32_t i = 0; i < warps; ++i) {
    Warp& warp = block_.warps[i];
    const uint32_t left = threads - i * kLanes;
    warp.block = &block_;
    warp.index = i;
    warp.lanes = left >= kLanes ? kAllLanes : (1u << left) - 1;
  }
}

Grid::~Grid() {
  if (block_.arena != nullptr) munmap(block_.arena, block_.arena_bytes);
}

CUresult Grid::run() {
  const uint64_t blocks = uint64_t{launch_.grid[0]} * launch_.grid[1] * launch_.grid[2];
  for (uint64_t number = 0; number < blocks && block_.error == CUDA_SUCCESS; ++number) {
    begin_block(number);
    run_block();
  }
  return block_.error;
}

void Grid::begin_block(uint64_t number) {
  block_.number = number;
  block_.index[0] = static_cast<uint32_t>(number % launch_.grid[0]);
  block_.index[1] = static_cast<uint32_t>(number / launch_.grid[0] % launch_.grid[1]);
  block_.index[2] = static_cast<uint32_t>(number / launch_.grid[0] / launch_.grid[1]);
  for (Barrier& barrier : block_.barriers) barrier = {};
  for (Warp& warp : block_.warps) begin_warp(warp);
}

void Grid::run_block() {
  for (bool ran = true; ran;) {
    ran = false;
    for (Warp& warp : block_.warps) {
      if (warp.state != WarpState::kReady) continue;
      ran = true;
      running_ = &warp;
      run_warp(warp);
      if (block_.error != CUDA_SUCCESS) return;
    }
  }
  for (const Warp& warp : block_.warps) {
    // Everybody waits and nobody can come: on a GPU that hangs until somebody ends it.
    if (warp.state != WarpState::kDone) block_.fail(CUDA_ERROR_LAUNCH_TIMEOUT);
  }
}

}  // namespace softgpu::ptx
