// Kernels for the programs that hold or move memory: an empty one, one that writes a pattern, and
// one that counts the words that differ from it.
#ifndef TANDEM_KERNEL  // nvcc and NVRTC: nothing
#define TANDEM_KERNEL(...)
#endif

__device__ static unsigned long long word_at(unsigned long long index, unsigned long long seed) {
  unsigned long long word = (index + 1) * 0x9e3779b97f4a7c15ull ^ seed;
  word ^= word >> 29;
  return word * 0xbf58476d1ce4e5b9ull;
}

extern "C" __global__ void nothing() {}
TANDEM_KERNEL(nothing, 1.0 * blockDim.x, 0.0)

extern "C" __global__ void fill(unsigned long long* words, unsigned long long count,
                                unsigned long long seed) {
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += step)
    words[i] = word_at(i, seed);
}
TANDEM_KERNEL(fill, (unsigned long long* words, unsigned long long count, unsigned long long seed),
              8.0 * count / gridDim.x, 8.0 * count / gridDim.x)

extern "C" __global__ void count_wrong(const unsigned long long* words, unsigned long long count,
                                       unsigned long long seed, unsigned long long* wrong) {
  const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
  unsigned long long own = 0;
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += step)
    own += words[i] != word_at(i, seed);
  if (own != 0) atomicAdd(wrong, own);
}
TANDEM_KERNEL(count_wrong,
              (const unsigned long long* words, unsigned long long count, unsigned long long seed,
               unsigned long long* wrong),
              8.0 * count / gridDim.x, 8.0 * count / gridDim.x)
