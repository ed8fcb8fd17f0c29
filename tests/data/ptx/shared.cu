// Threads that cooperate: shared memory, barriers, shuffles, atomics.
extern "C" __global__ void reduce(const float* x, float* sum, int n) {
  __shared__ float partial[32];
  float value = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    value += x[i];
  }
  for (int by = 16; by > 0; by /= 2) value += __shfl_down_sync(0xffffffff, value, by);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x < 32) {
    value = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0;
    for (int by = 16; by > 0; by /= 2) value += __shfl_xor_sync(0xffffffff, value, by);
    if (threadIdx.x == 0) atomicAdd(sum, value);
  }
}
constexpr int kTile = 16;
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n) {
  __shared__ float tile_a[kTile][kTile], tile_b[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < (n + kTile - 1) / kTile; ++t) {
    const int k_a = t * kTile + threadIdx.x, k_b = t * kTile + threadIdx.y;
    tile_a[threadIdx.y][threadIdx.x] = row < n && k_a < n ? a[row * n + k_a] : 0;
    tile_b[threadIdx.y][threadIdx.x] = column < n && k_b < n ? b[k_b * n + column] : 0;
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    __syncthreads();
  }
  if (row < n && column < n) c[row * n + column] = sum;
}
extern "C" __global__ void histogram(const unsigned char* x, unsigned* bins, int n) {
  __shared__ unsigned local[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    atomicAdd(&local[x[i]], 1u);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x) {
    if (local[i] != 0) atomicAdd(&bins[i], local[i]);
  }
}
extern "C" __global__ void inclusive_scan(int* x, int n) {  // one block, dynamic shared memory
  extern __shared__ int buffer[];
  int* from = buffer;
  int* to = buffer + n;
  const int i = threadIdx.x;
  if (i < n) from[i] = x[i];
  __syncthreads();
  for (int by = 1; by < n; by *= 2) {
    if (i < n) to[i] = i >= by ? from[i] + from[i - by] : from[i];
    __syncthreads();
    int* const swap = from;
    from = to;
    to = swap;
  }
  if (i < n) x[i] = from[i];
}
extern "C" __global__ void bitonic_sort(unsigned long long* x, int n) {  // n threads, a power of two
  extern __shared__ unsigned long long keys[];
  const int i = threadIdx.x;
  keys[i] = x[i];
  for (int size = 2; size <= n; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      const int other = i ^ stride;
      if (other > i) {
        const bool up = (i & size) == 0;
        const unsigned long long a = keys[i], b = keys[other];
        if ((a > b) == up) {
          keys[i] = b;
          keys[other] = a;
        }
      }
    }
  }
  __syncthreads();
  x[i] = keys[i];
}
extern "C" __global__ void barrier_reductions(const int* x, int* out) {
  const int positive = x[threadIdx.x] > 0;
  const int count = __syncthreads_count(positive);
  const int all = __syncthreads_and(positive);
  const int any = __syncthreads_or(positive);
  if (threadIdx.x == 0) {
    out[0] = count;
    out[1] = all;
    out[2] = any;
  }
}
extern "C" __global__ void warp_votes(const int* x, unsigned* out) {
  const int i = threadIdx.x;
  const unsigned positive = __ballot_sync(0xffffffff, x[i] > 0);
  const unsigned same = __match_any_sync(0xffffffff, x[i]);
  const unsigned least = __reduce_min_sync(0xffffffff, (unsigned)x[i]);
  const int every = __all_sync(0xffffffff, x[i] >= 0), some = __any_sync(0xffffffff, x[i] == 3);
  unsigned inside = 0;
  if (x[i] % 2 != 0) inside = __activemask();
  out[4 * i] = positive;
  out[4 * i + 1] = same;
  out[4 * i + 2] = least + 1000 * every + 2000 * some;
  out[4 * i + 3] = inside;
}
// Warps that wait for each other through memory instead of a barrier.
extern "C" __global__ void relay(volatile int* turn) {
  const int warp = threadIdx.x / 32;
  while (*turn != warp) {
  }
  __syncwarp();
  if (threadIdx.x % 32 == 0) *turn = warp + 1;
}
