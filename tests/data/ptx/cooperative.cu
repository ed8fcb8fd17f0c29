#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void neighbours(unsigned* cells, unsigned* next, int steps) {
  cg::grid_group grid = cg::this_grid();
  const unsigned n = grid.size(), i = grid.thread_rank();
  for (int step = 0; step < steps; ++step) {
    next[i] = cells[(i + 1) % n] + cells[(i + n - 1) % n];
    grid.sync();
    cells[i] = next[i];
    grid.sync();
  }
}
// A block's shared and local memory is preserved while other blocks run.
extern "C" __global__ void keeps(const int* order, unsigned* sums, unsigned* out) {
  extern __shared__ unsigned kept[];
  cg::grid_group grid = cg::this_grid();
  unsigned own[8];
  for (int k = 0; k < 8; ++k) own[order[k]] = k * grid.thread_rank();
  kept[threadIdx.x] = 3 * grid.thread_rank();
  atomicAdd(&sums[blockIdx.x], threadIdx.x + 1);
  grid.sync();
  const unsigned other = sums[(blockIdx.x + 1) % gridDim.x];
  out[grid.thread_rank()] = other + kept[blockDim.x - 1 - threadIdx.x] + own[order[threadIdx.x % 8]];
}
// Each block waits for the block with the next index, without a barrier.
extern "C" __global__ void backwards(volatile unsigned* flags) {
  if (blockIdx.x + 1 < gridDim.x) {
    while (flags[blockIdx.x + 1] == 0) {
    }
  }
  flags[blockIdx.x] = flags[blockIdx.x + 1] + 1;
}
// A lock that the blocks take in reverse order.
extern "C" __global__ void tickets(unsigned* turn, unsigned* out) {
  const unsigned mine = gridDim.x - 1 - blockIdx.x;
  while (atomicCAS(turn, mine, mine) != mine) {
  }
  out[mine] = blockIdx.x;
  __threadfence();
  atomicExch(turn, mine + 1);
}
