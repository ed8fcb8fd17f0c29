// The programs' kernels, for images with machine code that cannot be executed here.
#ifndef TANDEM_KERNEL
#define TANDEM_KERNEL(...)
#endif

extern "C" __global__ void saxpy(float a, const float* x, const float* y, float* out, size_t n) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a * x[i] + y[i];
}
TANDEM_KERNEL(saxpy, 2.0 * blockDim.x, 12.0 * blockDim.x)

template <typename T>
__global__ void vector_add(const T* a, const T* b, T* c, size_t n) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
template __global__ void vector_add<float>(const float*, const float*, float*, size_t);
TANDEM_KERNEL(vector_add<float>, blockDim.x, 12.0 * blockDim.x)

// x = x * a + b in one thread, so the result depends on the order.
extern "C" __global__ void affine(unsigned* x, unsigned a, unsigned b) { *x = *x * a + b; }
TANDEM_KERNEL(affine, 2, 8)
