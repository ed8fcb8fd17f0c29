// Faults of the kind "does not pass on what it was given": functions between the handlers and the
// driver. The other faults sit in the code that would have them.
#include "faults.h"

#ifdef TANDEM_FAULTS

#include <cuda.h>

#include <cstdlib>
#include <cstring>

#include "driver.h"

namespace tandem::shim {
namespace {

const char* const kNames[] = {
    "",
#define FAULT(name, what) #name,
#include "faults.def"
#undef FAULT
};

Driver g_faulty;

CUresult hide_refusal(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  const CUresult result = g_driver.cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
  return result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result;
}
CUresult cut_copy(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return g_driver.cuMemcpyDtoHAsync_v2(to, from, bytes ? bytes - 1 : 0, stream);
}
CUresult lose_event(CUevent, CUstream) { return CUDA_SUCCESS; }
CUresult write_on_error(CUdeviceptr* address, size_t bytes) {
  const CUresult result = g_driver.cuMemAlloc_v2(address, bytes);
  if (result != CUDA_SUCCESS && address) *address = 0;
  return result;
}
CUresult hide_lost_context() {
  const CUresult result = g_driver.cuCtxSynchronize();
  return result == CUDA_ERROR_ILLEGAL_ADDRESS ? CUDA_SUCCESS : result;
}
CUresult launch_in_default_stream(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                  unsigned by, unsigned bz, unsigned shared, CUstream,
                                  void** parameters, void** extra) {
  return g_driver.cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, nullptr, parameters, extra);
}
CUresult launch_twice(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                      unsigned bz, unsigned shared, CUstream stream, void** parameters,
                      void** extra) {
  g_driver.cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
  return g_driver.cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}

struct Postponed {
  bool is_one;
  CUdeviceptr address;
  unsigned value;
  size_t count;
  CUstream stream;
};
__thread Postponed g_postponed;

void catch_up() {
  if (!g_postponed.is_one) return;
  g_postponed.is_one = false;
  g_driver.cuMemsetD32Async(g_postponed.address, g_postponed.value, g_postponed.count,
                            g_postponed.stream);
}
CUresult postpone_memset(CUdeviceptr address, unsigned value, size_t count, CUstream stream) {
  catch_up();
  g_postponed = {true, address, value, count, stream};
  return CUDA_SUCCESS;
}
CUresult copy_then_catch_up(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  const CUresult result = g_driver.cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
  catch_up();
  return result;
}
CUresult launch_then_catch_up(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                              unsigned by, unsigned bz, unsigned shared, CUstream stream,
                              void** parameters, void** extra) {
  const CUresult result =
      g_driver.cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
  catch_up();
  return result;
}
CUresult catch_up_and_wait(CUstream stream) {
  catch_up();
  return g_driver.cuStreamSynchronize(stream);
}
CUresult catch_up_and_wait_for_all() {
  catch_up();
  return g_driver.cuCtxSynchronize();
}

Fault named(const char* name) {
  for (uint8_t i = 1; name && i < sizeof(kNames) / sizeof(*kNames); ++i)
    if (std::strcmp(kNames[i], name) == 0) return static_cast<Fault>(i);
  return Fault::kNone;
}

}  // namespace

bool planted(Fault fault) {
  static int found = -1;  // no guard: threads that come at the same time find the same value
  if (found < 0) found = static_cast<int>(named(secure_getenv("TANDEM_FAULT")));
  return found == static_cast<int>(fault);
}

const Driver& handed_to() { return g_faulty; }

void plant_in_driver() {
  g_faulty = g_driver;
  if (planted(Fault::kDropError)) g_faulty.cuMemcpyHtoDAsync_v2 = hide_refusal;
  if (planted(Fault::kCutCopy)) g_faulty.cuMemcpyDtoHAsync_v2 = cut_copy;
  if (planted(Fault::kLoseEvent)) g_faulty.cuEventRecord = lose_event;
  if (planted(Fault::kWriteOnError)) g_faulty.cuMemAlloc_v2 = write_on_error;
  if (planted(Fault::kHideLostContext)) g_faulty.cuCtxSynchronize = hide_lost_context;
  if (planted(Fault::kNullStream)) g_faulty.cuLaunchKernel = launch_in_default_stream;
  if (planted(Fault::kLaunchTwice)) g_faulty.cuLaunchKernel = launch_twice;
  if (planted(Fault::kForgetPerThread)) {
    g_faulty.cuLaunchKernel_ptsz = g_driver.cuLaunchKernel;
    g_faulty.cuMemcpyHtoDAsync_v2_ptsz = g_driver.cuMemcpyHtoDAsync_v2;
    g_faulty.cuMemsetD32Async_ptsz = g_driver.cuMemsetD32Async;
  }
  if (planted(Fault::kReorderMemset)) {
    g_faulty.cuMemsetD32Async = postpone_memset;
    g_faulty.cuMemcpyHtoDAsync_v2 = copy_then_catch_up;
    g_faulty.cuLaunchKernel = launch_then_catch_up;
    g_faulty.cuStreamSynchronize = catch_up_and_wait;
    g_faulty.cuCtxSynchronize = catch_up_and_wait_for_all;
  }
}

}  // namespace tandem::shim

#endif
