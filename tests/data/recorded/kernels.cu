// Kernels of the recorded programs. What they compute does not matter, only that they differ.
#define ELEMENTWISE(name, expression)                                                      \
  extern "C" __global__ void name(float* out, const float* in, unsigned count) {           \
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                              \
    if (i < count) out[i] = expression;                                                    \
  }                                                                                        \
  TANDEM_KERNEL(name, 8 * 256, 2 * 4 * 256)

ELEMENTWISE(embed, in[i] + 1.0f)
ELEMENTWISE(norm, in[i] * 0.5f)
ELEMENTWISE(gemm, in[i] * 1.25f + 0.5f)
ELEMENTWISE(gelu, in[i] > 0 ? in[i] : 0.0f)
ELEMENTWISE(add, out[i] + in[i])
ELEMENTWISE(attend, in[i] * 0.125f)
ELEMENTWISE(loss, in[i] - 1.0f)
ELEMENTWISE(loss_backward, in[i] * 2.0f)
ELEMENTWISE(norm_backward, in[i] * 0.25f)
ELEMENTWISE(gelu_backward, in[i] > 0 ? 1.0f : 0.0f)
ELEMENTWISE(attend_backward, in[i] * 0.0625f)
ELEMENTWISE(adam, out[i] - in[i] * 0.001f)
ELEMENTWISE(head, in[i] + 2.0f)
ELEMENTWISE(argmax, in[i])
