// Control flow: divergence, calls, printing, failing.
#include <cassert>
#include <cstdio>
__device__ int counter = 5;
__constant__ float table[4] = {1, 2, 3, 4};
__device__ const char* const names[2] = {"ab", "cd"};
extern "C" __global__ void divergence(int* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const unsigned staying = __ballot_sync(0xffffffff, i % 6 != 3);
  int value = 0;
  for (int k = 0; k < i % 7; ++k) {
    if (k % 2 == 0) {
      value += k;
      if (i % 3 == 1) continue;
      value *= 2;
    } else {
      for (int j = i % 5; j > 0; --j) {
        if (j == 3 && k == 3) break;
        value += j * k;
      }
    }
    if (value > 40) break;
  }
  switch (i % 6) {
    case 0: value += 1; break;
    case 1: value -= 2;
    case 2: value ^= 5; break;
    case 3: out[i] = -value; return;
    case 4: value *= 3; break;
    default: value = i % 4 == 1 ? 7 : value;
  }
  // The lanes that did not return have reconverged.
  value += __popc(__ballot_sync(staying, 1)) * 1000;
  out[i] = value;
}
// Every lane takes the lock, competing with all others of its warp.
extern "C" __global__ void locked(int* lock, volatile int* count) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  *count = *count + 1;
  __threadfence();
  atomicExch(lock, 0);
}
// A loop that is long for one lane, followed by a barrier.
extern "C" __global__ void long_loop(int* out, int turns) {
  __shared__ int sums[64];
  int sum = 0;
  for (int k = 0; k < (threadIdx.x == 5 ? turns : (int)threadIdx.x); ++k) sum += k ^ threadIdx.x;
  sums[threadIdx.x] = sum;
  __syncthreads();
  out[threadIdx.x] = sums[63 - threadIdx.x];
}
__device__ __noinline__ unsigned fibonacci(unsigned n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}
extern "C" __global__ void recursion(unsigned* out) { out[threadIdx.x] = fibonacci(threadIdx.x % 12); }
struct Pair {
  float x;
  double y;
};
__device__ __noinline__ Pair swapped(Pair p, int by) { return {(float)p.y + by, p.x}; }
extern "C" __global__ void calls(Pair* pairs) {
  if (threadIdx.x % 3 != 1) pairs[threadIdx.x] = swapped(pairs[threadIdx.x], threadIdx.x);
}
typedef float (*Function)(float);
__device__ __noinline__ float twice(float x) { return 2 * x; }
__device__ __noinline__ float squared(float x) { return x * x; }
__device__ Function functions[2] = {twice, squared};
extern "C" __global__ void through_pointers(float* x, const int* which) {
  x[threadIdx.x] = functions[which[threadIdx.x]](x[threadIdx.x]);
}
extern "C" __global__ void variables(float* out) {
  atomicAdd(&counter, 2);
  out[threadIdx.x] = table[threadIdx.x % 4];
}
extern "C" __global__ void local_arrays(const int* order, int* out) {
  int values[16];
  for (int k = 0; k < 16; ++k) values[order[k]] = k * threadIdx.x;
  out[threadIdx.x] = values[3] + values[order[threadIdx.x % 16]];
}
extern "C" __global__ void print(int n) {
  if (threadIdx.x >= n) return;
  printf("%d %5.2f %s %c %lld %x 100%%\n", threadIdx.x, 1.5 * threadIdx.x, names[threadIdx.x % 2],
         'a' + threadIdx.x, 1ll << 40, 255u);
}
extern "C" __global__ void check(const int* x) { assert(x[threadIdx.x] != 3 && "no threes"); }
extern "C" __global__ void trap() { __trap(); }
extern "C" __global__ void poke(char* at, int bytes) {
  if (bytes == 4) *(int*)at = 1;
  if (bytes == 8) *(long long*)at = 1;
}
extern "C" __global__ void beyond_shared(int index, int* out) {
  __shared__ int few[32];
  few[threadIdx.x] = 1;
  __syncthreads();
  out[threadIdx.x] = few[index];
}
