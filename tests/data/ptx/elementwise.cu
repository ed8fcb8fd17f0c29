extern "C" __global__ void vector_add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
extern "C" __global__ void saxpy(float a, const float* x, float* y, size_t n) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    y[i] = a * x[i] + y[i];
  }
}
extern "C" __global__ void scale4(float4* x, const float4* by) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const float4 a = x[i], b = by[i];
  x[i] = make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}
struct Mixed {
  char tag;
  double weight;
  float values[3];
  short last;
};
extern "C" __global__ void by_value(Mixed m, unsigned char flag, double* out) {
  out[threadIdx.x] = m.weight * m.values[threadIdx.x % 3] + m.tag + m.last + flag;
}
