// A client of the bare software driver. Prints "ready", begins when it reads a line, prints
// figures.
//
//   softgpu IMAGE launch GROUPS   nanoseconds per launch of an empty kernel, one line per group
//   softgpu IMAGE rate COUNT      seconds in which COUNT kernels of a microsecond were done
//   softgpu IMAGE hold COUNT      keeps COUNT kernels pending behind a wait until the next line
#include <unistd.h>

#include <cstring>

#include "driver.h"

enum { kGroup = 32, kDrainEvery = 8 };

static decltype(&cuLaunchKernel) launch_kernel;
static decltype(&cuStreamSynchronize) synchronize;

// Virtual time continues while this program waits for the process that measures it.
static void await_line(const char* state) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  puts(state);
  fflush(stdout);
  ((void (*)(void))dlsym(driver, "softgpu_wait_begin"))();
  char byte;
  while (read(0, &byte, 1) == 1 && byte != '\n') {
  }
  ((void (*)(void))dlsym(driver, "softgpu_wait_end"))();
}

static void launch(CUfunction kernel, CUstream stream, int count) {
  for (int i = 0; i < count; i++)
    check(launch_kernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr), "launch");
}

// The queue is drained outside the timing, so that it never fills; an untimed group follows.
static void time_launches(const Ready& ready, int groups) {
  for (int i = 0; i < groups; i++) {
    if (i % kDrainEvery == 0) {
      check(synchronize(ready.stream), "synchronize");
      launch(ready.noop, ready.stream, kGroup);
    }
    const uint64_t start = now_ns();
    launch(ready.noop, ready.stream, kGroup);
    printf("%.2f\n", (double)(now_ns() - start) / kGroup);
  }
}

static void time_kernels(const Ready& ready, int count) {
  const uint64_t start = now_ns();
  launch(ready.work, ready.stream, count);
  check(synchronize(ready.stream), "synchronize");
  printf("%.9f\n", (double)(now_ns() - start) / 1e9);
}

static void hold(const Ready& ready, int count) {
  void* host;
  CUdeviceptr word;
  check(DRIVER(cuMemHostAlloc, "cuMemHostAlloc")(&host, 4, CU_MEMHOSTALLOC_DEVICEMAP), "alloc");
  check(DRIVER(cuMemHostGetDevicePointer_v2, "cuMemHostGetDevicePointer")(&word, host, 0),
        "pointer");
  const auto wait = DRIVER(cuStreamWaitValue32_v2, "cuStreamWaitValue32");
  check(wait(ready.stream, word, 1, CU_STREAM_WAIT_VALUE_EQ), "wait");
  launch(ready.work, ready.stream, count);
  await_line("pending");
  __atomic_store_n((uint32_t*)host, 1, __ATOMIC_RELEASE);
  check(synchronize(ready.stream), "synchronize");
  puts("done");
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const Ready ready = make_ready(argv[1]);
  launch_kernel = DRIVER(cuLaunchKernel, "cuLaunchKernel");
  synchronize = DRIVER(cuStreamSynchronize, "cuStreamSynchronize");
  const int count = atoi(argv[3]);
  await_line("ready");
  if (strcmp(argv[2], "launch") == 0) {
    time_launches(ready, count);
  } else if (strcmp(argv[2], "rate") == 0) {
    time_kernels(ready, count);
  } else {
    hold(ready, count);
  }
  return 0;
}
