// Launches in the style of CUDA 3: a function keeps its block shape, its shared memory size and a
// buffer of parameters until a launch, which then becomes one in today's style.
#include <algorithm>
#include <cstring>
#include <vector>

#include "api.h"
#include "module.h"

namespace softgpu {

struct LegacyLaunch {
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  std::vector<char> params{};
  size_t params_bytes = 0;  // how many of them are passed
};

namespace {

constexpr size_t kMostParams = 4096;

// Finds the function's settings, creating them if there are none, and changes them.
template <class Change>
CUresult change(CUfunction handle, Change apply) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  Function* function;
  if (const CUresult bad = resolve_function(call.rt, call.context, handle, &function)) return bad;
  if (!function->legacy) function->legacy = std::make_shared<LegacyLaunch>();
  return apply(*function->legacy) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult set_params(CUfunction function, int offset, const void* from, size_t bytes) {
  return change(function, [&](LegacyLaunch& launch) {
    const auto at = static_cast<size_t>(offset);
    if (offset < 0 || !from || at > kMostParams || bytes > kMostParams - at) return false;
    if (launch.params.size() < at + bytes) launch.params.resize(at + bytes);
    memcpy(launch.params.data() + at, from, bytes);
    return true;
  });
}

CUresult launch(CUfunction handle, int width, int height, CUstream stream) {
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  LegacyLaunch launch;
  const CUresult bad = change(handle, [&](const LegacyLaunch& kept) {
    launch = kept;
    return true;
  });
  if (bad) return bad;
  launch.params.resize(std::max(launch.params.size(), launch.params_bytes + 1));
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, launch.params.data(),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &launch.params_bytes, CU_LAUNCH_PARAM_END};
  const CUresult result = cuLaunchKernel(
      handle, static_cast<unsigned>(width), static_cast<unsigned>(height), 1, launch.block[0],
      launch.block[1], launch.block[2], launch.shared_bytes, stream, nullptr, extra);
  change(handle, [&](LegacyLaunch& kept) {
    kept = launch;  // cuLaunchKernel has dropped the settings
    return true;
  });
  return result;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
  return change(function, [&](LegacyLaunch& launch) {
    if (x <= 0 || y <= 0 || z <= 0) return false;
    launch.block[0] = static_cast<unsigned>(x);
    launch.block[1] = static_cast<unsigned>(y);
    launch.block[2] = static_cast<unsigned>(z);
    return true;
  });
}

SOFTGPU_API cuFuncSetSharedSize(CUfunction function, unsigned int bytes) {
  return change(function, [&](LegacyLaunch& launch) {
    launch.shared_bytes = bytes;
    return true;
  });
}

SOFTGPU_API cuParamSetSize(CUfunction function, unsigned int bytes) {
  return change(function, [&](LegacyLaunch& launch) {
    if (bytes > kMostParams) return false;
    launch.params_bytes = bytes;
    return true;
  });
}

SOFTGPU_API cuParamSeti(CUfunction function, int offset, unsigned int value) {
  return set_params(function, offset, &value, sizeof value);
}
SOFTGPU_API cuParamSetf(CUfunction function, int offset, float value) {
  return set_params(function, offset, &value, sizeof value);
}
SOFTGPU_API cuParamSetv(CUfunction function, int offset, void* from, unsigned int bytes) {
  return set_params(function, offset, from, bytes);
}

SOFTGPU_API cuLaunch(CUfunction function) { return launch(function, 1, 1, nullptr); }
SOFTGPU_API cuLaunchGrid(CUfunction function, int width, int height) {
  return launch(function, width, height, nullptr);
}
SOFTGPU_API cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
  return launch(function, width, height, stream);
}
