// The driver calls of the programs in this folder, and the few steps that several of them share.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "facts.h"

// Looked up once. Functions that a driver may lack are looked up with TRY_DRIVER where they are
// used.
struct Driver {
#define CALL(type, name) decltype(&::type) type = (decltype(&::type))driver_function(name)
  CALL(cuDeviceGetAttribute, "cuDeviceGetAttribute");
  CALL(cuCtxGetStreamPriorityRange, "cuCtxGetStreamPriorityRange");
  CALL(cuEventCreate, "cuEventCreate");
  CALL(cuEventElapsedTime, "cuEventElapsedTime");
  CALL(cuEventQuery, "cuEventQuery");
  CALL(cuEventRecord, "cuEventRecord");
  CALL(cuLaunchKernel, "cuLaunchKernel");
  CALL(cuMemAlloc_v2, "cuMemAlloc");
  CALL(cuMemcpyDtoH_v2, "cuMemcpyDtoH");
  CALL(cuMemsetD8_v2, "cuMemsetD8");
  CALL(cuModuleGetFunction, "cuModuleGetFunction");
  CALL(cuStreamCreate, "cuStreamCreate");
  CALL(cuStreamCreateWithPriority, "cuStreamCreateWithPriority");
  CALL(cuStreamSynchronize, "cuStreamSynchronize");
#undef CALL
};

inline const Driver& cu() {
  static const Driver driver;
  return driver;
}

inline CUfunction function_of(CUmodule module, const char* name) {
  CUfunction function = nullptr;
  check(cu().cuModuleGetFunction(&function, module, name), name);
  return function;
}

inline CUstream new_stream() {
  CUstream stream = nullptr;
  check(cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return stream;
}

inline CUevent new_event(unsigned flags) {
  CUevent event = nullptr;
  check(cu().cuEventCreate(&event, flags), "cuEventCreate");
  return event;
}

inline int attribute(CUdevice_attribute which) {
  int value = 0;
  check(cu().cuDeviceGetAttribute(&value, which, 0), "cuDeviceGetAttribute");
  return value;
}

struct Grid {
  unsigned blocks = 1, threads = 32;
};

template <typename... Parameters>
void launch(CUfunction function, Grid grid, CUstream stream, Parameters... parameters) {
  void* pointers[] = {(void*)&parameters..., nullptr};
  check(cu().cuLaunchKernel(function, grid.blocks, 1, 1, grid.threads, 1, 1, 0, stream, pointers,
                            nullptr),
        "cuLaunchKernel");
}

// Returns the device time, between two events, of what `submit` submits.
template <typename Submit>
double device_us(CUstream stream, Submit submit) {
  static const CUevent begin = new_event(CU_EVENT_DEFAULT), end = new_event(CU_EVENT_DEFAULT);
  check(cu().cuEventRecord(begin, stream), "cuEventRecord");
  submit();
  check(cu().cuEventRecord(end, stream), "cuEventRecord");
  check(cu().cuStreamSynchronize(stream), "cuStreamSynchronize");
  float ms = 0;
  check(cu().cuEventElapsedTime(&ms, begin, end), "cuEventElapsedTime");
  return ms * 1e3;
}

// Returns the number of iterations with which a kernel lasts about `wanted_us`. `submit(n)`
// launches the kernel with n iterations.
template <typename Submit>
uint64_t calibrate(CUstream stream, double wanted_us, Submit submit) {
  enum { kLaunches = 4, kRounds = 3, kAttempts = 12 };
  // An idle GPU takes some milliseconds to reach its clock rate.
  for (const uint64_t end_ns = now_ns() + 50'000'000; now_ns() < end_ns;)
    device_us(stream, [&] { submit(256); });
  uint64_t iterations = 16;
  for (int attempt = 0; attempt < kAttempts; attempt++) {
    double us = 1e12;
    for (int round = 0; round < kRounds; round++) {
      us = std::min(us, device_us(stream, [&] {
                          for (int i = 0; i < kLaunches; i++) submit(iterations);
                        }) / kLaunches);
    }
    if (std::abs(us - wanted_us) < 0.03 * wanted_us) break;
    // The first launches may be mostly overhead, so limit the step to a factor that a few doublings
    // would reach as well.
    const double factor = std::min(16.0, wanted_us / std::max(us, 1e-3));
    iterations = std::max<uint64_t>(1, (uint64_t)((double)iterations * factor));
  }
  return iterations;
}

// Polls `is_there`; returns whether it became true before the deadline.
template <typename Ask>
bool poll(Ask is_there, double deadline_s = 2) {
  const uint64_t end_ns = now_ns() + (uint64_t)(deadline_s * 1e9);
  while (!is_there()) {
    if (now_ns() > end_ns) return false;
  }
  return true;
}
