__device__ unsigned seen[4] = {10, 20, 30, 40};
static __device__ unsigned offset = 1000;
static __device__ __noinline__ unsigned own(unsigned x) { return x * 3 + offset; }
__device__ unsigned scaled(unsigned x) { return own(x); }
typedef unsigned (*Function)(unsigned);
__device__ Function chosen = scaled;
extern "C" __global__ void tell(unsigned* x) { x[threadIdx.x] = seen[threadIdx.x]; }
