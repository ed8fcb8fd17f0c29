// Kernel launches and host functions.
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
CUresult copy_extra(const Function& function, void** extra, char* to) {
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
  if (function.params_bytes > 0) memcpy(to, buffer, function.params_bytes);
  return CUDA_SUCCESS;
}

CUresult copy_params(const Function& function, void** params, void** extra, Payload* payload) {
  char* to = payload->reserve(function.params_bytes);
  if (!to) return CUDA_ERROR_OUT_OF_MEMORY;
  if (extra) return params ? CUDA_ERROR_INVALID_VALUE : copy_extra(function, extra, to);
  const tandem::KernelEntry& entry = *function.entry;
  if (!params) return entry.param_count == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < entry.param_count; ++i) {
    if (!params[i]) return CUDA_ERROR_INVALID_VALUE;
    memcpy(to + entry.param_offset[i], params[i], entry.param_size[i]);
  }
  return CUDA_SUCCESS;
}

CUresult launch(CUfunction handle, const Shape& shape, CUstream stream, void** params,
                void** extra) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  auto* function = checked<Function>(on.call.rt.functions, handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult bad = check(shape)) return bad;
  Work work;
  work.kind = OpKind::kKernel;
  work.body = run_kernel;
  work.function = function;
  memcpy(work.grid, shape.grid, sizeof work.grid);
  memcpy(work.block, shape.block, sizeof work.block);
  work.shared_bytes = shape.shared_bytes;
  if (const CUresult bad = copy_params(*function, params, extra, &work.payload)) return bad;
  return on.enqueue(work);
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
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  work.kind = OpKind::kHostFunc;
  work.body = run_host_function;
  work.host_function = function;
  work.user = user;
  return on.enqueue(work);
}

SOFTGPU_API cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* user,
                                unsigned int flags) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  if (!callback || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Work work;
  work.kind = OpKind::kHostFunc;
  work.body = run_callback;
  work.callback = callback;
  work.handle = stream;
  work.user = user;
  return on.enqueue(work);
}
