#include "run.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace softgpu::ptx {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMostTogetherBytes = 1 << 30;   // for all blocks resident at once
constexpr uint64_t kMostPlaces = 8192;             // each takes a few of a process's mappings
constexpr uint32_t kManyPasses = 1024;             // until a busy block yields to others
constexpr uint64_t kUnknownDepthBytes = 64 << 10;  // for recursion and calls through pointers

uint64_t pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

uint32_t threads_of(const Launch& launch) {
  return launch.block[0] * launch.block[1] * launch.block[2];
}

uint32_t warps_of(const Launch& launch) { return (threads_of(launch) + kLanes - 1) / kLanes; }

uint64_t shared_bytes_of(const Launch& launch) {
  return uint64_t{launch.program->shared_bytes} + launch.dynamic_shared_bytes;
}

// Local memory that the deepest call chain needs.
uint64_t deepest(const Function& function, std::set<const Function*>* path) {
  if (!path->insert(&function).second) return kUnknownDepthBytes;
  uint64_t below = function.calls_unknown ? kUnknownDepthBytes : 0;
  for (const Function* callee : function.callees) below = std::max(below, deepest(*callee, path));
  path->erase(&function);
  return std::min(function.frame_bytes + below, 8 * kUnknownDepthBytes);
}

uint64_t deepest(const Launch& launch) {
  std::set<const Function*> path;
  return deepest(*launch.kernel, &path);
}

}  // namespace

Grid::Grid(const Launch& launch)
    : launch_(launch),
      count_(uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2]),
      cluster_(uint64_t{launch.cluster[0]} * launch.cluster[1] * launch.cluster[2]),
      thread_local_bytes_(deepest(launch)) {
  reserve();
  if (arena_ != nullptr && !add_place()) {
    munmap(arena_, place_bytes_ * most_places_);
    arena_ = nullptr;
  }
}

Grid::~Grid() {
  if (arena_ != nullptr) munmap(arena_, place_bytes_ * most_places_);
}

// Reserves addresses for the most places there may be; a place gets memory when first needed.
void Grid::reserve() {
  const uint64_t warps = warps_of(launch_);
  const uint64_t shared = shared_bytes_of(launch_);
  shared_pages_ = pages(shared);
  local_pages_ = pages(thread_local_bytes_ * warps * kLanes);
  place_bytes_ = shared_pages_ + local_pages_ + 3 * kPage;
  const Function& kernel = *launch_.kernel;
  const uint64_t touched =
      kPage + shared + warps * (kernel.register_bytes + uint64_t{kLanes} * kernel.frame_bytes);
  most_places_ = launch_.cooperative ? count_ : std::min(count_, launch_.resident);
  most_places_ = std::min({most_places_, kMostTogetherBytes / touched, kMostPlaces});
  most_places_ = std::max(most_places_, cluster_);
  for (;; most_places_ = std::max(most_places_ / 2, cluster_)) {
    void* arena = mmap(nullptr, place_bytes_ * most_places_, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena != MAP_FAILED) arena_ = static_cast<char*>(arena);
    if (arena_ != nullptr || most_places_ == cluster_) return;
  }
}

bool Grid::add_place() {
  char* shared = arena_ + place_bytes_ * places_.size() + kPage;
  char* local = shared + shared_pages_ + kPage;
  const auto open = [](char* at, uint64_t bytes) {
    return bytes == 0 || mprotect(at, bytes, PROT_READ | PROT_WRITE) == 0;
  };
  if (!open(shared, shared_pages_) || !open(local, local_pages_)) return false;
  Block& block = places_.emplace_back();
  free_.push_back(&block);
  block.launch = &launch_;
  if (launch_.cooperative) block.workspace = &workspace_;
  block.arena = arena_;
  block.arena_bytes = place_bytes_ * most_places_;
  block.shared = shared;
  block.shared_bytes = shared_bytes_of(launch_);
  block.local = local;
  block.thread_local_bytes = thread_local_bytes_;
  block.warps.resize(warps_of(launch_));
  block.local_bytes = thread_local_bytes_ * block.warps.size() * kLanes;
  for (uint32_t i = 0; i < block.warps.size(); ++i) {
    Warp& warp = block.warps[i];
    const uint32_t left = threads_of(launch_) - i * kLanes;
    warp.block = &block;
    warp.index = i;
    warp.lanes = left >= kLanes ? kAllLanes : (1u << left) - 1;
  }
  return true;
}

// Begins the next block, with its whole cluster. Null if none is left or there is no room for it.
Block* Grid::begin_next() {
  if (begun_ == count_) return nullptr;
  while (free_.size() < cluster_) {
    if (places_.size() >= most_places_ || !add_place()) return nullptr;
  }
  Block& first = *free_.back();
  first.own_cluster.blocks.clear();
  first.own_cluster.phase = first.own_cluster.slept_ns = 0;
  const uint64_t begin_ns = take_places();
  for (uint32_t rank = 0; rank < cluster_; ++rank) {
    Block& block = *free_.back();
    free_.pop_back();
    begin(block, first.own_cluster, begin_ns);
    if (rank > 0) waiting_.push_back(&block);
  }
  first.own_cluster.live = static_cast<uint32_t>(cluster_);
  return &first;
}

// Takes a place for each block of the next cluster; returns when the last of these places became
// free, in ns since the kernel began.
uint64_t Grid::take_places() {
  uint64_t begin_ns = 0;
  const uint64_t end = begun_ + cluster_;
  for (uint64_t at = std::max(begun_, launch_.together); at < end && !ends_.empty(); ++at) {
    begin_ns = ends_.top();
    ends_.pop();
  }
  return begin_ns;
}

// Begins the cluster's next block. Clusters begin in order, and so do the blocks within one.
void Grid::begin(Block& block, Cluster& cluster, uint64_t begin_ns) {
  uint64_t which = begun_ / cluster_, rank = begun_ % cluster_;
  block.begin_ns = begin_ns;
  ++begun_;
  block.cluster = &cluster;
  block.rank = static_cast<uint32_t>(rank);
  cluster.blocks.push_back(&block);
  for (int i = 0; i < 3; ++i) {
    const uint32_t size = launch_.cluster[i], clusters = launch_.grid[i] / size;
    block.index[i] = static_cast<uint32_t>(which % clusters * size + rank % size);
    which /= clusters;
    rank /= size;
  }
  block.number = block.index[0] + uint64_t{launch_.grid[0]} *
                                      (block.index[1] + uint64_t{launch_.grid[1]} * block.index[2]);
  for (Barrier& barrier : block.barriers) barrier = {};
  for (Warp& warp : block.warps) begin_warp(warp);
}

// Its place is freed only with the last block of its cluster: the others may access its memory.
void Grid::end(Block& block) {
  uint64_t end_ns = block.begin_ns;
  for (const Warp& warp : block.warps) {
    end_ns = std::max(end_ns, block.begin_ns + warp.time_ns());
    sleeps_ = sleeps_ || warp.slept_ns > 0;
  }
  ends_.push(end_ns);
  last_end_ns_ = std::max(last_end_ns_, end_ns);
  Cluster& cluster = *block.cluster;
  if (--cluster.live > 0) return;
  free_.insert(free_.end(), cluster.blocks.begin(), cluster.blocks.end());
}

// A block runs until it ends or waits. After a wait, another block begins if there is room;
// otherwise the block that has waited longest continues.
CUresult Grid::run() {
  bool waits = true;
  size_t held = 0;  // consecutive turns in which no warp could run
  while (begun_ < count_ || !waiting_.empty()) {
    Block* block = waits || waiting_.empty() ? begin_next() : nullptr;
    if (block == nullptr) {
      // All blocks of a cooperative launch must be resident to wait for each other.
      if (waits && launch_.cooperative && begun_ < count_) return CUDA_ERROR_OUT_OF_MEMORY;
      if (waiting_.empty()) return CUDA_ERROR_OUT_OF_MEMORY;  // not even one cluster
      if (held > waiting_.size()) return CUDA_ERROR_LAUNCH_TIMEOUT;
      block = waiting_.front();
      waiting_.pop_front();
    }
    const Turn result = run_block(*block);
    if (result == Turn::kFailed) return block->error;
    waits = result != Turn::kEnded;
    held = result == Turn::kHeld ? held + 1 : 0;
    if (waits) {
      waiting_.push_back(block);
    } else {
      end(*block);
    }
  }
  return CUDA_SUCCESS;
}

Grid::Turn Grid::run_block(Block& block) {
  for (uint32_t pass = 0; pass < kManyPasses; ++pass) {
    bool ran = false, watches = true;
    for (Warp& warp : block.warps) {
      if (warp.state != WarpState::kReady) continue;
      ran = true;
      running_ = &warp;
      run_warp(warp);
      if (block.error != CUDA_SUCCESS) return Turn::kFailed;
      watches = watches && warp.state == WarpState::kReady && warp.watched >= kPatience;
    }
    if (ran && watches) return Turn::kWaits;
    if (!ran) {
      const Turn result = finish(block);
      return result == Turn::kHeld && pass > 0 ? Turn::kWaits : result;
    }
  }
  return Turn::kWaits;
}

Grid::Turn Grid::finish(Block& block) {
  for (const Warp& warp : block.warps) {
    if (warp.state == WarpState::kAtCluster) return Turn::kHeld;
  }
  for (const Warp& warp : block.warps) {
    // A deadlock: every warp waits and none is left to arrive. A GPU would hang until killed.
    if (warp.state != WarpState::kDone) block.fail(CUDA_ERROR_LAUNCH_TIMEOUT);
  }
  return block.error == CUDA_SUCCESS ? Turn::kEnded : Turn::kFailed;
}

Counters Grid::counters() const {
  Counters sum;
  for (const Block& block : places_) {
    sum.instructions += block.counters.instructions;
    sum.flops += block.counters.flops;
    sum.sectors += block.counters.sectors;
  }
  return sum;
}

}  // namespace softgpu::ptx
