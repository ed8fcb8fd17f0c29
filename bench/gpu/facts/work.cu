// Kernels, for the programs in this folder, whose duration can be set. They perform a given number
// of dependent operations, since a kernel that watched a clock would not notice that its context
// was switched out. On the software GPU, the declared operations determine the time, and its
// timeline has what ran when.
#ifdef __CUDACC__
#define TANDEM_KERNEL(...)
#else
#include "tandem_kernel.h"
#endif

typedef unsigned long long Word;

#ifdef __CUDACC__
// `seed` is 0, which the compiler does not know, so it cannot optimise anything away.
static __device__ __forceinline__ float spend(Word iterations, float seed, float x) {
  for (Word i = 0; i < iterations; i++) x = x * 0.5f + seed;
  asm volatile("" : "+f"(x));  // done before any other volatile assembly that follows
  return x;
}
static __device__ __forceinline__ Word globaltimer() {
  Word ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}
#else
static inline float spend(Word, float, float x) { return x; }
static inline Word globaltimer() { return 0; }
#endif

extern "C" __global__ void empty() {}
TANDEM_KERNEL(empty, 0.0, 0.0)

extern "C" __global__ void work(Word iterations, float seed, float* out) {
  const float x = spend(iterations, seed, seed);
  if (x != 0) *out = x;
}
TANDEM_KERNEL(work, (Word iterations, float seed, float* out), 2.0 * iterations * blockDim.x, 0.0)

// Like work, and lets a kernel that was launched with programmatic serialisation begin at once.
extern "C" __global__ void releasing(Word iterations, float seed, float* out) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  const float x = spend(iterations, seed, seed);
  if (x != 0) *out = x;
}
TANDEM_KERNEL(releasing, (Word iterations, float seed, float* out), 2.0 * iterations * blockDim.x,
              0.0)

// Like work, in one thread, and sets a flag at its end.
extern "C" __global__ void flagging(Word iterations, float seed, volatile Word* flag, Word value) {
  const float x = spend(iterations, seed, seed);
  __threadfence_system();
  *flag = value + (x != 0);
}
TANDEM_KERNEL(flagging, (Word iterations, float seed, volatile Word* flag, Word value),
              2.0 * iterations * blockDim.x, 0.0)

// Returns the device's clock in nanoseconds and the size of its steps; 0 if there is none.
extern "C" __global__ void clock_now(Word* out) {
  const Word now = globaltimer();
  Word first = now;
  while (now != 0 && (first = globaltimer()) == now) {
  }
  Word second = first;
  while (now != 0 && (second = globaltimer()) == first) {
  }
  out[1] = second - first;
  out[0] = globaltimer();
}
TANDEM_KERNEL(clock_now, 0.0, 0.0)

// A kernel of many blocks that records what the device did with it. `record` (windows.cpp) starts
// as zeros and gets: the complement of the first block's begin, the last block's end, the number of
// gaps, and as many gaps as fit. A gap is a time in which a thread that constantly watches the
// clock made no progress: its context was switched out. Blocks run in order, so some of those that
// watch are always running.
enum { kBegin, kEnd, kGapCount, kGaps, kGapRoom = 128, kChunk = 256, kGapNs = 20000 };

extern "C" __global__ void
#ifdef __CUDACC__
__launch_bounds__(1024, 2)
#endif
    stamped(Word* record, Word iterations, float seed, unsigned look_every) {
#ifdef __CUDACC__
  const bool first = threadIdx.x == 0;
  const bool looks = first && blockIdx.x % look_every == 0;
  Word last = globaltimer();
  if (first) atomicMax(&record[kBegin], ~last);
  float x = seed;
  for (Word left = iterations; left > 0;) {
    const Word some = left < kChunk ? left : kChunk;
    x = spend(some, seed, x);
    left -= some;
    if (!looks) continue;
    const Word now = globaltimer();
    if (now - last > kGapNs) {
      const Word gap = atomicAdd(&record[kGapCount], Word(1));
      if (gap < kGapRoom) {
        record[kGaps + 2 * gap] = last;
        record[kGaps + 2 * gap + 1] = now;
      }
    }
    last = now;
  }
  __syncthreads();
  if (first || x != 0) atomicMax(&record[kEnd], globaltimer());
#else
  (void)record, (void)iterations, (void)seed, (void)look_every;
#endif
}
TANDEM_KERNEL(stamped, (Word * record, Word iterations, float seed, unsigned look_every),
              2.0 * iterations * blockDim.x, 0.0)
