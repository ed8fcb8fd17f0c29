#include <cuda_bf16.h>
#include <cuda_fp16.h>
extern "C" __global__ void half_math(const __half* a, const __half* b, __half* out) {
  const int i = threadIdx.x;
  out[6 * i] = __hadd(a[i], b[i]);
  out[6 * i + 1] = __hmul(a[i], b[i]);
  out[6 * i + 2] = __hfma(a[i], b[i], a[i]);
  out[6 * i + 3] = __hsub(a[i], b[i]);
  out[6 * i + 4] = __float2half(sqrtf(__half2float(__habs(a[i]))));
  out[6 * i + 5] = __hlt(a[i], b[i]) ? a[i] : __hneg(b[i]);
}
extern "C" __global__ void half_pairs(__half2* x, float2* out) {
  const int i = threadIdx.x;
  x[i] = __hfma2(x[i], x[i], __float2half2_rn(1.0f));
  out[i] = __half22float2(x[i]);
}
extern "C" __global__ void brain_floats(const __nv_bfloat16* a, __nv_bfloat16* out, float* wide) {
  const int i = threadIdx.x;
  out[i] = __float2bfloat16(__bfloat162float(a[i]) * 1.01f);
  wide[i] = __bfloat162float(out[i]);
}
