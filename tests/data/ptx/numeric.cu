// Arithmetic-heavy kernels.
extern "C" __global__ void mandelbrot(unsigned* steps, int width, int height, unsigned limit) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const float cr = -2.0f + 3.0f * x / width, ci = -1.25f + 2.5f * y / height;
  float zr = 0, zi = 0;
  unsigned n = 0;
  while (n < limit && zr * zr + zi * zi < 4.0f) {
    const float next = zr * zr - zi * zi + cr;
    zi = 2 * zr * zi + ci;
    zr = next;
    ++n;
  }
  steps[y * width + x] = n;
}
extern "C" __global__ void nbody(const float4* bodies, float3* forces, int n) {
  extern __shared__ float4 tile[];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float4 own = i < n ? bodies[i] : make_float4(0, 0, 0, 0);
  float3 force = make_float3(0, 0, 0);
  for (int first = 0; first < n; first += blockDim.x) {
    const int j = first + threadIdx.x;
    tile[threadIdx.x] = j < n ? bodies[j] : make_float4(0, 0, 0, 0);
    __syncthreads();
    for (int k = 0; k < blockDim.x; ++k) {
      const float dx = tile[k].x - own.x, dy = tile[k].y - own.y, dz = tile[k].z - own.z;
      const float square = dx * dx + dy * dy + dz * dz + 0.01f;
      const float by = tile[k].w * rsqrtf(square) / square;
      force.x += dx * by;
      force.y += dy * by;
      force.z += dz * by;
    }
    __syncthreads();
  }
  if (i < n) forces[i] = force;
}
__device__ float normal_cdf(float d) { return 0.5f * erfcf(-d * 0.70710678f); }
extern "C" __global__ void black_scholes(const float* price, const float* strike,
                                         const float* years, float rate, float volatility,
                                         float* call, float* put, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float root = sqrtf(years[i]);
  const float d1 = (logf(price[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i])
                   / (volatility * root);
  const float d2 = d1 - volatility * root, discount = expf(-rate * years[i]);
  call[i] = price[i] * normal_cdf(d1) - strike[i] * discount * normal_cdf(d2);
  put[i] = strike[i] * discount * normal_cdf(-d2) - price[i] * normal_cdf(-d1);
}
extern "C" __global__ void functions(const double* x, double* out, int n) {
  const int i = threadIdx.x;
  if (i >= n) return;
  double* to = out + 12 * i;
  to[0] = sin(x[i]);
  to[1] = cos(x[i]);
  to[2] = tan(x[i]);
  to[3] = exp(x[i]);
  to[4] = log(fabs(x[i]) + 1);
  to[5] = pow(fabs(x[i]), 1.7);
  to[6] = atan2(x[i], 2.0);
  to[7] = tanh(x[i]);
  to[8] = cbrt(x[i]);
  to[9] = erf(x[i]);
  to[10] = fmod(x[i], 0.7);
  to[11] = sqrt(fabs(x[i])) + hypot(x[i], 3.0) + floor(x[i]) + ceil(x[i]) + rint(x[i]);
}
extern "C" __global__ void fnv1a(const unsigned char* text, const int* begin, unsigned long long* hash) {
  const int i = threadIdx.x;
  unsigned long long h = 14695981039346656037ull;
  for (int k = begin[i]; k < begin[i + 1]; ++k) h = (h ^ text[k]) * 1099511628211ull;
  hash[i] = h;
}
extern "C" __global__ void wide_integers(const long long* a, const long long* b, long long* out) {
  const int i = threadIdx.x;
  long long* to = out + 8 * i;
  to[0] = a[i] * b[i];
  to[1] = b[i] != 0 ? a[i] / b[i] : -1;
  to[2] = b[i] != 0 ? a[i] % b[i] : -1;
  to[3] = __mul64hi(a[i], b[i]);
  to[4] = (long long)__umul64hi(a[i], b[i]);
  to[5] = __popcll(a[i]) + 100 * __clzll(a[i]) + 10000 * __ffsll(a[i]);
  to[6] = (long long)__brevll(a[i]);
  to[7] = (a[i] << (b[i] & 63)) ^ (a[i] >> (b[i] & 63));
}
