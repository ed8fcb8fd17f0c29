// Runs the threads of a launch as fibers, with the barriers where they meet.
//
// Theory of operation. The threads of a block run one after another on one carrier fiber. A thread
// keeps that fiber only when it waits at a barrier; a new carrier then runs the threads that have
// not started. So a kernel without barriers never switches stacks. Blocks also run one after
// another, on one thread of the process. A block whose threads wait for other blocks (of its
// cluster or of the grid) is parked with a copy of its shared memory until those have arrived.
//
// Static shared memory of a block that may be parked is the thread-local storage of this library
// (see cooperative_groups.h): it lies in one piece, which is copied when another block takes over.
#pragma once

#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <deque>
#include <unordered_map>
#include <vector>

#include "tandem_fiber.h"

namespace tandem {

// CUresult values of the driver API.
inline constexpr uint32_t kOutOfMemory = 2, kLaunchTimeout = 702, kLaunchFailed = 719;

struct Piece {
  char* begin;
  size_t bytes;
  bool has(const void* at) const {
    return static_cast<size_t>(static_cast<const char*>(at) - begin) < bytes;
  }
};

// This library's thread-local storage of the calling thread.
inline Piece thread_storage() {
  static const char here = 0;
  Piece found{nullptr, 0};
  const auto look = [](dl_phdr_info* info, size_t, void* result) {
    const auto at = reinterpret_cast<uintptr_t>(&here);
    bool ours = false;
    size_t bytes = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& part = info->dlpi_phdr[i];
      if (part.p_type == PT_LOAD) ours |= at - info->dlpi_addr - part.p_vaddr < part.p_memsz;
      if (part.p_type == PT_TLS) bytes = part.p_memsz;
    }
    if (ours) *static_cast<Piece*>(result) = {static_cast<char*>(info->dlpi_tls_data), bytes};
    return ours ? 1 : 0;
  };
  dl_iterate_phdr(look, &found);
  return found.begin ? found : Piece{nullptr, 0};
}

struct Fiber {
  FiberContext context;
  char* stack;
  uint64_t arrival;  // its thread's phase at the cluster's barrier, plus one; 0: none
};

enum class Meeting : uint8_t { kBlock, kCluster, kGrid };

struct Waiting {
  Fiber* fiber;
  tandem_uint3 index;
  Meeting at;
};

struct Block {
  unsigned number;
  unsigned begun, live;  // threads that have started; that have not ended
  bool parked = false, passed_grid = false;
  char* dynamic;          // its dynamic shared memory
  char* saved = nullptr;  // its static shared memory, while it is parked
  std::vector<Waiting> waiting{};
};

// One launch. Kept with its fibers for the next launch; a body that faults leaves it behind.
class Grid {
 public:
  using Carrier = void (*)();

  // Returns how the launch ended: 0 or one of the statuses above.
  uint32_t run(const KernelLaunch* launch, Carrier carrier) {
    launch_ = launch;
    carrier_ = carrier;
    next_ = parked_ = at_grid_ = status_ = 0;
    threads_ = blockDim.x * blockDim.y * blockDim.z;
    count_ = gridDim.x * gridDim.y * gridDim.z;
    own_dynamic_.assign(1, launch->dynamic_shared);
    current() = this;
    while (status_ == 0 && (next_ < count_ || parked_ > 0)) {
      Block* block = next_block();
      if (!block) {
        status_ = kLaunchTimeout;  // the parked blocks wait for a thread that will never come
        break;
      }
      go_on(block);
      if (status_ == 0) settle(block);
    }
    clear();
    return status_;
  }

  void sync_block() { wait(Meeting::kBlock); }

  void sync_grid() {
    if (!launch_->cooperative) fail(kLaunchFailed);
    wait(Meeting::kGrid);
  }

  void arrive_at_cluster() {
    Phase& phase = phase_of(block_->number);
    ++phase.arrived;
    running_->arrival = phase.passed + 1;
  }
  void wait_for_cluster() {
    if (running_->arrival > phase_of(block_->number).passed) wait(Meeting::kCluster);
  }

  // Ends the launch from inside a thread.
  void fail(uint32_t status) {
    status_ = status;
    finished_ = running_;  // it will not continue: its stack is free
    switch_fiber(&running_->context, &scheduler_);
  }

  bool is_cooperative() const { return launch_->cooperative != 0; }
  dim3 cluster() const {
    const uint32_t* size = launch_->cluster;
    return size[0] == 0 ? dim3() : dim3(size[0], size[1], size[2]);
  }
  unsigned cluster_rank(tandem_uint3 block) const {
    const dim3 size = cluster();
    return block.x % size.x + size.x * (block.y % size.y + size.y * (block.z % size.z));
  }

  // The same variable in another block of the cluster; null if `at` is not in shared memory.
  void* map_shared(void* at, unsigned rank) {
    Block* other = find_or_add(number_of(rank));
    if (other == block_) return at;
    if (storage().has(at)) return saved_of(other) + (static_cast<char*>(at) - storage().begin);
    const Piece dynamic{block_->dynamic, launch_->shared_bytes};
    return dynamic.has(at) ? other->dynamic + (static_cast<char*>(at) - dynamic.begin) : nullptr;
  }
  // The rank of the block that owns `at`; the calling block's own rank if no other block does.
  unsigned rank_of_shared(const void* at) {
    const dim3 size = cluster();
    for (unsigned rank = 0; rank < size.x * size.y * size.z; ++rank) {
      const auto found = kept_.find(number_of(rank));
      if (found == kept_.end() || found->second == block_) continue;
      const Block& other = *found->second;
      if (other.saved && Piece{other.saved, storage().bytes}.has(at)) return rank;
      if (Piece{other.dynamic, launch_->shared_bytes}.has(at)) return rank;
    }
    return cluster_rank(blockIdx);
  }

  static Grid*& current() {
    static Grid* grid;
    return grid;
  }

  // A carrier: starts threads one after another until none is left; a thread that waits keeps its
  // carrier. One instance per body, so that the body can be inlined: most are shorter than a call.
  template <void (*kBody)(const KernelLaunch*)>
  static void carry() {
    Grid* grid = current();
    Block* block = grid->block_;
    Fiber* self = grid->running_;
    while (block->begun < grid->threads_) {
      const unsigned n = block->begun++;
      threadIdx = {n % blockDim.x, n / blockDim.x % blockDim.y, n / (blockDim.x * blockDim.y)};
      self->arrival = 0;
      kBody(grid->launch_);
      block = grid->block_;  // the block may have been parked and moved meanwhile
      --block->live;
      if (self->arrival > 0) grid->forget_arrival(*block, *self);
    }
    grid->finished_ = self;
    switch_fiber(&self->context, &grid->scheduler_);  // never returns
  }

 private:
  static constexpr size_t kStackBytes = 64 * 1024;
  // Fibers that wait at the same time: 1 GiB if each uses 8 KiB of its stack.
  static constexpr size_t kMostFibers = 128 * 1024;
  static constexpr size_t kMostIdle = 4096;  // fibers kept for reuse

  struct Phase {  // of a cluster's barrier
    uint64_t passed = 0;
    unsigned arrived = 0;  // threads that have arrived and not ended since
  };

  // Parked blocks whose barrier has opened come first, then the next one that has not started.
  Block* next_block() {
    if (!ready_.empty()) {
      Block* block = ready_.front();
      ready_.pop_front();
      return block;
    }
    if (next_ == count_) return nullptr;
    Block* block = kept_.empty() ? &first_ : find_or_add(next_);
    if (block == &first_) prepare(block, next_);
    ++next_;
    return block;
  }

  void prepare(Block* block, unsigned number) {
    block->number = number;
    block->begun = 0;
    block->live = threads_;
    block->dynamic = take_dynamic();
  }

  Block* find_or_add(unsigned number) {
    if (block_ && block_->number == number) return block_;
    const auto found = kept_.find(number);
    if (found != kept_.end()) return found->second;
    Block* block = new Block;
    prepare(block, number);
    if (number < next_) block->begun = threads_, block->live = 0;  // it has ended
    kept_[number] = block;
    return block;
  }

  char* take_dynamic() {
    if (own_dynamic_.empty()) return static_cast<char*>(calloc(1, launch_->shared_bytes + 64));
    char* memory = own_dynamic_.back();
    own_dynamic_.pop_back();
    return memory;
  }

  // Runs a block until its threads have ended or wait for other blocks.
  void go_on(Block* block) {
    block_ = block;
    if (block->parked) {
      memcpy(storage().begin, block->saved, storage().bytes);
      --parked_;
    }
    block->parked = false;
    blockIdx = index_of(block->number);
    g_dynamic_shared = block->dynamic;
    std::vector<Waiting> released;
    bool together = false;
    do {
      if (together) released.swap(block->waiting);
      if (!together) take_released(block, &released);
      for (const Waiting& thread : released) {
        if (status_ != 0) {
          block->waiting.push_back(thread);  // to be dropped with the block
          continue;
        }
        threadIdx = thread.index;
        enter(thread.fiber);
      }
      while (block->begun < threads_ && status_ == 0) enter(take_carrier());
      released.clear();
      together = all_at(*block, Meeting::kBlock);
    } while (status_ == 0 && together);
  }

  static bool all_at(const Block& block, Meeting meeting) {
    if (block.waiting.size() != block.live || block.live == 0) return false;
    for (const Waiting& thread : block.waiting) {
      if (thread.at != meeting) return false;
    }
    return true;
  }
  static bool anyone_at_cluster(const Block& block) {
    for (const Waiting& thread : block.waiting) {
      if (thread.at == Meeting::kCluster) return true;
    }
    return false;
  }
  void take_released(Block* block, std::vector<Waiting>* released) {
    if (block->waiting.empty()) return;
    std::vector<Waiting> still;
    for (const Waiting& thread : block->waiting) {
      const bool goes = thread.at == Meeting::kGrid ? block->passed_grid
                                                    : thread.at == Meeting::kCluster &&
                                                          cluster_passed(*block, *thread.fiber);
      (goes ? *released : still).push_back(thread);
    }
    block->waiting.swap(still);
    block->passed_grid = false;
  }

  // The block has ended or is parked; other blocks may be waiting for either.
  void settle(Block* block) {
    const unsigned number = block->number;
    block_ = nullptr;
    if (block->live > 0) {
      park(block);
    } else {
      own_dynamic_.push_back(block->dynamic);
      if (block != &first_) {
        kept_.erase(number);
        discard(block);
      }
    }
    if (!phases_.empty()) look_at_cluster(number);
  }

  void park(Block* block) {
    if (block == &first_) {  // it stays, so it needs an object of its own after all
      block = new Block(std::move(first_));
      first_ = Block{};
    }
    kept_[block->number] = block;
    memcpy(saved_of(block), storage().begin, storage().bytes);
    block->parked = true;
    ++parked_;
    if (!all_at(*block, Meeting::kGrid) || ++at_grid_ < count_) return;
    at_grid_ = 0;
    for (unsigned number = 0; number < count_; ++number) {
      Block* other = kept_.at(number);
      other->passed_grid = true;
      ready_.push_back(other);
    }
  }

  char* saved_of(Block* block) {
    if (!block->saved) block->saved = static_cast<char*>(calloc(1, storage().bytes + 64));
    return block->saved;
  }
  const Piece& storage() {
    if (!storage_.begin) storage_ = thread_storage();
    return storage_;
  }

  tandem_uint3 index_of(unsigned number) const {
    return {number % gridDim.x, number / gridDim.x % gridDim.y, number / (gridDim.x * gridDim.y)};
  }
  // The number of the block with this rank in the running block's cluster.
  unsigned number_of(unsigned rank) const { return member(blockIdx, rank); }
  unsigned member(tandem_uint3 block, unsigned rank) const {
    const dim3 size = cluster();
    const unsigned x = block.x / size.x * size.x + rank % size.x;
    const unsigned y = block.y / size.y * size.y + rank / size.x % size.y;
    const unsigned z = block.z / size.z * size.z + rank / (size.x * size.y);
    return x + gridDim.x * (y + gridDim.y * z);
  }

  // Keyed by the number of the cluster's first block.
  Phase& phase_of(unsigned number) { return phases_[member(index_of(number), 0)]; }
  bool cluster_passed(const Block& block, const Fiber& fiber) {
    return fiber.arrival <= phase_of(block.number).passed;
  }

  void look_at_cluster(unsigned number) {
    Phase& phase = phase_of(number);
    const dim3 size = cluster();
    const unsigned blocks = size.x * size.y * size.z;
    unsigned live = 0;
    for (unsigned rank = 0; rank < blocks; ++rank) {
      const unsigned other = member(index_of(number), rank);
      const auto found = kept_.find(other);
      live += found != kept_.end() ? found->second->live : other >= next_ ? threads_ : 0;
    }
    if (phase.arrived == 0 || phase.arrived < live) return;
    ++phase.passed;
    phase.arrived = 0;
    for (unsigned rank = 0; rank < blocks; ++rank) {
      const auto found = kept_.find(member(index_of(number), rank));
      if (found != kept_.end() && anyone_at_cluster(*found->second)) {
        ready_.push_back(found->second);
      }
    }
  }

  void wait(Meeting meeting) {
    block_->waiting.push_back({running_, threadIdx, meeting});
    switch_fiber(&running_->context, &scheduler_);
  }

  void enter(Fiber* fiber) {
    if (!fiber) return;
    running_ = fiber;
    switch_fiber(&scheduler_, &fiber->context);
    if (finished_) give_back(finished_);
    finished_ = nullptr;
  }

  Fiber* take_carrier() {
    if (idle_.empty() && fibers_ == kMostFibers) {
      status_ = kOutOfMemory;
      return nullptr;
    }
    Fiber* fiber;
    if (idle_.empty()) {
      fiber = new Fiber;
      fiber->stack = static_cast<char*>(malloc(kStackBytes));
      ++fibers_;
    } else {
      fiber = idle_.back();
      idle_.pop_back();
    }
    prepare_fiber(&fiber->context, fiber->stack, kStackBytes, carrier_);
    return fiber;
  }

  void give_back(Fiber* fiber) {
    if (idle_.size() < kMostIdle) return idle_.push_back(fiber);
    free(fiber->stack);
    delete fiber;
    --fibers_;
  }

  // A thread that has ended no longer counts at the barrier.
  void forget_arrival(const Block& block, const Fiber& fiber) {
    Phase& phase = phase_of(block.number);
    if (fiber.arrival > phase.passed) --phase.arrived;
  }

  void discard(Block* block) {
    for (const Waiting& thread : block->waiting) give_back(thread.fiber);
    free(block->saved);
    delete block;
  }

  // Also clears a launch that has failed: its threads end where they are, without unwinding.
  void clear() {
    if (block_ == &first_) own_dynamic_.push_back(first_.dynamic);
    for (const Waiting& thread : first_.waiting) give_back(thread.fiber);
    first_.waiting.clear();
    for (const auto& [number, block] : kept_) {
      own_dynamic_.push_back(block->dynamic);
      discard(block);
    }
    for (char* memory : own_dynamic_) {
      if (memory != launch_->dynamic_shared) free(memory);
    }
    own_dynamic_.clear();
    kept_.clear();
    ready_.clear();
    phases_.clear();
    block_ = nullptr;
    storage_ = {nullptr, 0};
  }

  const KernelLaunch* launch_ = nullptr;
  Carrier carrier_ = nullptr;
  unsigned threads_ = 0, count_ = 0, next_ = 0, parked_ = 0, at_grid_ = 0;
  uint32_t status_ = 0;
  Block first_{};           // runs while no block is parked, so that none has to be allocated
  Block* block_ = nullptr;  // the running one
  std::unordered_map<unsigned, Block*> kept_{};  // parked blocks, and those whose memory was mapped
  std::deque<Block*> ready_{};
  std::unordered_map<unsigned, Phase> phases_{};
  std::vector<char*> own_dynamic_{};  // dynamic shared memory that no block uses
  Piece storage_{nullptr, 0};

  FiberContext scheduler_;
  Fiber* running_ = nullptr;
  Fiber* finished_ = nullptr;
  std::vector<Fiber*> idle_{};
  size_t fibers_ = 0;
};

}  // namespace tandem
