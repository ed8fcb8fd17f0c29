// Kernel launches and host functions.
#include <cstdlib>
#include <cstring>

#include "api.h"
#include "execute.h"

namespace softgpu {
namespace {

struct Shape {
  uint32_t grid[3], block[3], shared_bytes;
};

constexpr uint32_t kMaxGridYZ = 65535;
constexpr uint32_t kMaxDynamicSharedBytes = 101376;

CUresult check(const Shape& shape) {
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (shape.grid[i] == 0 || shape.block[i] == 0) return CUDA_ERROR_INVALID_VALUE;
    threads *= shape.block[i];
  }
  if (shape.grid[0] > INT32_MAX || shape.grid[1] > kMaxGridYZ || shape.grid[2] > kMaxGridYZ ||
      shape.block[2] > 64 || threads > 1024 || shape.shared_bytes > kMaxDynamicSharedBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// `extra`: a list of tags and values that ends with CU_LAUNCH_PARAM_END.
CUresult copy_extra(const Function& function, void** extra, Op* op) {
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[1];
    } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      bytes = *static_cast<const size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (bytes < function.params_bytes || (!buffer && function.params_bytes > 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (function.params_bytes > 0) memcpy(op->params, buffer, function.params_bytes);
  return CUDA_SUCCESS;
}

CUresult copy_params(const Function& function, void** params, void** extra, Op* op) {
  if (function.params_bytes > kInlineParamBytes) {
    op->heap = op->params = static_cast<char*>(malloc(function.params_bytes));
  }
  if (extra) return params ? CUDA_ERROR_INVALID_VALUE : copy_extra(function, extra, op);
  const tandem::KernelEntry& entry = *function.entry;
  if (!params) return entry.param_count == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < entry.param_count; ++i) {
    if (!params[i]) return CUDA_ERROR_INVALID_VALUE;
    memcpy(op->params + entry.param_offset[i], params[i], entry.param_size[i]);
  }
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction handle, const Shape& shape, CUstream stream, void** params,
                void** extra) {
  StreamCall on;
  if (const CUresult bad = on.find(stream)) return bad;
  Runtime& rt = on.call.rt;
  auto* function = checked<Function>(rt.functions, handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult bad = check(shape)) return bad;
  rt.wait_for_room(on.call.lock, on.stream->context);
  if (rt.life != Life::kReady) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  Op* op = rt.new_op(OpKind::kKernel, on.stream);
  if (const CUresult bad = copy_params(*function, params, extra, op)) {
    rt.release(op);
    return bad;
  }
  op->body = run_kernel;
  op->function = function;
  memcpy(op->grid, shape.grid, sizeof op->grid);
  memcpy(op->block, shape.block, sizeof op->block);
  op->shared_bytes = shape.shared_bytes;
  rt.submit(op);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
                           unsigned int bx, unsigned int by, unsigned int bz,
                           unsigned int shared_bytes, CUstream stream, void** params,
                           void** extra) {
  return launch(f, {{gx, gy, gz}, {bx, by, bz}, shared_bytes}, stream, params, extra);
}

SOFTGPU_API cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction f, void** params, void** extra) {
  if (!c || (c->numAttrs > 0 && !c->attrs)) return CUDA_ERROR_INVALID_VALUE;
  const Shape shape{{c->gridDimX, c->gridDimY, c->gridDimZ},
                    {c->blockDimX, c->blockDimY, c->blockDimZ},
                    c->sharedMemBytes};
  return launch(f, shape, c->hStream, params, extra);
}

SOFTGPU_API cuLaunchCooperativeKernel(CUfunction f, unsigned int gx, unsigned int gy,
                                      unsigned int gz, unsigned int bx, unsigned int by,
                                      unsigned int bz, unsigned int shared_bytes, CUstream stream,
                                      void** params) {
  return launch(f, {{gx, gy, gz}, {bx, by, bz}, shared_bytes}, stream, params, nullptr);
}

SOFTGPU_API cuLaunchHostFunc(CUstream stream, CUhostFn function, void* user) {
  StreamCall on;
  if (const CUresult bad = on.find(stream)) return bad;
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  on.call.rt.wait_for_room(on.call.lock, on.stream->context);
  Op* op = on.call.rt.new_op(OpKind::kHostFunc, on.stream);
  op->body = run_host_function;
  op->host_function = function;
  op->user = user;
  on.call.rt.submit(op);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* user,
                                unsigned int flags) {
  StreamCall on;
  if (const CUresult bad = on.find(stream)) return bad;
  if (!callback || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  on.call.rt.wait_for_room(on.call.lock, on.stream->context);
  Op* op = on.call.rt.new_op(OpKind::kHostFunc, on.stream);
  op->body = run_callback;
  op->callback = callback;
  op->handle = stream;
  op->user = user;
  on.call.rt.submit(op);
  return CUDA_SUCCESS;
}
