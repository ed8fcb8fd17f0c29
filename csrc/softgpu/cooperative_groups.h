// Cooperative groups of the software GPU, for a `.cu` file that nvcc compiles with its own header
// of this name. It has the block, the cluster and the grid, with the names that CUDA gives their
// members and barriers. Tiles and coalesced groups, which depend on warps, do not exist.
//
// Include it before the first kernel: __shared__ variables defined after it belong to a block that
// may wait for other blocks. They are zero when a thread of the process first runs a kernel and not
// initialised after that, as without this header.
#pragma once

#undef __shared__
#define __shared__ static thread_local

namespace cooperative_groups {

namespace details {
inline unsigned product(const dim3& size) { return size.x * size.y * size.z; }
inline unsigned rank(const tandem_uint3& at, const dim3& size) {
  return at.x + size.x * (at.y + size.y * at.z);
}
inline dim3 as_dim3(const tandem_uint3& at) { return dim3(at.x, at.y, at.z); }
}  // namespace details

class thread_block {
 public:
  static void sync() { tandem::Grid::current()->sync_block(); }
  static unsigned thread_rank() { return details::rank(threadIdx, blockDim); }
  static unsigned num_threads() { return details::product(blockDim); }
  static unsigned size() { return num_threads(); }
  static dim3 group_index() { return details::as_dim3(blockIdx); }
  static dim3 thread_index() { return details::as_dim3(threadIdx); }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};

class cluster_group {
 public:
  struct arrival_token {};
  static void sync() {
    barrier_arrive();
    barrier_wait();
  }
  static arrival_token barrier_arrive() {
    tandem::Grid::current()->arrive_at_cluster();
    return {};
  }
  static void barrier_wait() { tandem::Grid::current()->wait_for_cluster(); }
  static void barrier_wait(arrival_token&&) { barrier_wait(); }
  static dim3 dim_blocks() { return tandem::Grid::current()->cluster(); }
  static unsigned num_blocks() { return details::product(dim_blocks()); }
  static unsigned block_rank() { return tandem::Grid::current()->cluster_rank(blockIdx); }
  static dim3 block_index() {
    const dim3 size = dim_blocks();
    return dim3(blockIdx.x % size.x, blockIdx.y % size.y, blockIdx.z % size.z);
  }
  static unsigned num_threads() { return num_blocks() * thread_block::num_threads(); }
  static unsigned size() { return num_threads(); }
  static unsigned thread_rank() {
    return block_rank() * thread_block::num_threads() + thread_block::thread_rank();
  }
  template <class T>
  static T* map_shared_rank(T* at, int rank) {
    void* plain = const_cast<void*>(static_cast<const void*>(at));
    return static_cast<T*>(tandem::Grid::current()->map_shared(plain, static_cast<unsigned>(rank)));
  }
  static unsigned query_shared_rank(const void* at) {
    return tandem::Grid::current()->rank_of_shared(at);
  }
};

class grid_group {
 public:
  static bool is_valid() { return tandem::Grid::current()->is_cooperative(); }
  static void sync() { tandem::Grid::current()->sync_grid(); }
  static dim3 group_dim() { return gridDim; }
  static dim3 dim_blocks() { return gridDim; }
  static unsigned long long num_blocks() { return details::product(gridDim); }
  static dim3 block_index() { return details::as_dim3(blockIdx); }
  static unsigned long long block_rank() { return details::rank(blockIdx, gridDim); }
  static unsigned long long num_threads() { return num_blocks() * thread_block::num_threads(); }
  static unsigned long long size() { return num_threads(); }
  static unsigned long long thread_rank() {
    return block_rank() * thread_block::num_threads() + thread_block::thread_rank();
  }
};

inline thread_block this_thread_block() { return {}; }
inline cluster_group this_cluster() { return {}; }
inline grid_group this_grid() { return {}; }

template <class Group>
void sync(const Group& group) {
  group.sync();
}
template <class Group>
auto thread_rank(const Group& group) {
  return group.thread_rank();
}
template <class Group>
auto group_size(const Group& group) {
  return group.size();
}

}  // namespace cooperative_groups

// The underlying intrinsics.
static inline void __cluster_barrier_arrive() { tandem::Grid::current()->arrive_at_cluster(); }
static inline void __cluster_barrier_arrive_relaxed() { __cluster_barrier_arrive(); }
static inline void __cluster_barrier_wait() { tandem::Grid::current()->wait_for_cluster(); }
static inline unsigned __clusterRelativeBlockRank() {
  return cooperative_groups::cluster_group::block_rank();
}
static inline unsigned __clusterSizeInBlocks() {
  return cooperative_groups::cluster_group::num_blocks();
}
static inline void* __cluster_map_shared_rank(const void* at, unsigned rank) {
  return tandem::Grid::current()->map_shared(const_cast<void*>(at), rank);
}
