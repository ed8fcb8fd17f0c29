// Common parts of the measuring programs. They find the driver by cuGetProcAddress, as libcudart
// does.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = NULL;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  CUresult (*get_name)(CUresult, const char**) = NULL;
  if (driver != NULL) *(void**)&get_name = dlsym(driver, "cuGetErrorName");
  if (get_name != NULL) get_name(result, &name);
  fprintf(stderr, "%s failed: %d %s\n", what, (int)result, name != NULL ? name : "");
  exit(1);
}

static inline void stay_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) perror("sched_setaffinity"), exit(1);
}

static inline void* driver_function(const char* name) {
  static CUresult (*get)(const char*, void**, int, cuuint64_t, CUdriverProcAddressQueryResult*);
  if (get == nullptr) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (driver == nullptr) {
      fprintf(stderr, "no driver: %s\n", dlerror());
      exit(1);
    }
    *(void**)&get = dlsym(driver, "cuGetProcAddress_v2");
  }
  void* found = nullptr;
  CUdriverProcAddressQueryResult status;
  check(get(name, &found, 12080, 0, &status), name);
  if (found == nullptr) {
    fprintf(stderr, "the driver lacks %s\n", name);
    exit(1);
  }
  return found;
}

// Returns the driver's own function, bypassing whatever is preloaded: by the dlsym from the C
// library's own handle, which no preloaded library can replace.
static inline void* bare_function(const char* name) {
  static const char* const kPlaces[][2] = {
      {"libc.so.6", "GLIBC_2.34"}, {"libdl.so.2", "GLIBC_2.2.5"}, {"libdl.so.2", "GLIBC_2.17"}};
  void* found = nullptr;
  for (int i = 0; i < 3 && found == nullptr; i++) {
    void* library = dlopen(kPlaces[i][0], RTLD_NOW | RTLD_NOLOAD);
    if (library != nullptr) found = dlvsym(library, "dlsym", kPlaces[i][1]);
  }
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (found != nullptr && driver != nullptr)
    found = ((void* (*)(void*, const char*))found)(driver, name);
  if (found == nullptr) {
    fprintf(stderr, "the driver lacks %s\n", name);
    exit(1);
  }
  return found;
}

#define DRIVER(type, name) ((decltype(&type))driver_function(name))
#define BARE(type, name) ((decltype(&type))bare_function(name))

static inline uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// A context on device 0 with a stream and the kernels of the image at `path`.
struct Ready {
  CUstream stream;
  CUfunction noop, work, eight;
};

// Loads the image at `path` into the primary context of device 0, and makes that current.
static inline CUmodule make_module(const char* path) {
  check(DRIVER(cuInit, "cuInit")(0), "cuInit");
  CUdevice device;
  check(DRIVER(cuDeviceGet, "cuDeviceGet")(&device, 0), "cuDeviceGet");
  CUcontext context;
  check(DRIVER(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")(&context, device), "retain");
  check(DRIVER(cuCtxSetCurrent, "cuCtxSetCurrent")(context), "cuCtxSetCurrent");
  FILE* file = fopen(path, "rb");
  if (file == nullptr) {
    perror(path);
    exit(1);
  }
  fseek(file, 0, SEEK_END);
  const long bytes = ftell(file);
  rewind(file);
  void* image = malloc((size_t)bytes);
  if (fread(image, 1, (size_t)bytes, file) != (size_t)bytes) exit(1);
  fclose(file);
  CUmodule module;
  check(DRIVER(cuModuleLoadData, "cuModuleLoadData")(&module, image), "cuModuleLoadData");
  return module;
}

static inline Ready make_ready(const char* path) {
  const CUmodule module = make_module(path);
  Ready ready;
  check(DRIVER(cuModuleGetFunction, "cuModuleGetFunction")(&ready.noop, module, "noop"), "noop");
  check(DRIVER(cuModuleGetFunction, "cuModuleGetFunction")(&ready.work, module, "work"), "work");
  check(DRIVER(cuModuleGetFunction, "cuModuleGetFunction")(&ready.eight, module, "eight"), "eight");
  check(DRIVER(cuStreamCreate, "cuStreamCreate")(&ready.stream, CU_STREAM_NON_BLOCKING), "stream");
  return ready;
}

// The cost of reading the counter that timestamps records.
static inline double rdtsc_ns(void) {
  enum { kReads = 1000000 };
  uint64_t sum = 0;
  const uint64_t start = now_ns();
  for (int i = 0; i < kReads; i++) sum += __builtin_ia32_rdtsc();
  const double each = (double)(now_ns() - start) / kReads;
  return sum == 0 ? 0 : each;  // the sum keeps the compiler from dropping the reads
}
