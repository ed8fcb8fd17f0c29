// Works in two streams without waiting. For each line on stdin it submits two steps in each stream
// and then prints a line. At the end of stdin it prints `right N`, the number of streams, of 2,
// whose word has the expected value.
//
//   sets IMAGE
#include <unistd.h>

#include "driver.h"

enum { kStreams = 2, kSteps = 2, kBlocks = 264, kThreads = 32 };
static const char* const kKernels[kStreams] = {"left", "right"};

struct Lane {
  CUstream stream;
  CUfunction step;
  CUdeviceptr word;
  unsigned expected, count;
};

static void submit(Lane* lane) {
  for (int i = 0; i < kSteps; i++) {
    unsigned factor = 3 + 2 * (lane->count % 5), addend = ++lane->count;
    void* parameters[] = {&lane->word, &factor, &addend};
    check(DRIVER(cuLaunchKernel, "cuLaunchKernel")(lane->step, kBlocks, 1, 1, kThreads, 1, 1, 0,
                                                   lane->stream, parameters, nullptr),
          "launch");
    lane->expected = lane->expected * factor + addend;
  }
}

static unsigned read_back(const Lane* lane) {
  unsigned found = 0;
  check(DRIVER(cuStreamSynchronize, "cuStreamSynchronize")(lane->stream), "synchronize");
  check(DRIVER(cuMemcpyDtoH_v2, "cuMemcpyDtoH")(&found, lane->word, sizeof found), "copy");
  return found;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const CUmodule module = make_module(argv[1]);
  Lane lanes[kStreams] = {};
  for (int i = 0; i < kStreams; i++) {
    Lane* lane = &lanes[i];
    check(DRIVER(cuStreamCreate, "cuStreamCreate")(&lane->stream, CU_STREAM_NON_BLOCKING),
          "stream");
    check(DRIVER(cuModuleGetFunction, "cuModuleGetFunction")(&lane->step, module, kKernels[i]),
          "function");
    check(DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&lane->word, sizeof(unsigned)), "alloc");
    check(DRIVER(cuMemsetD32_v2, "cuMemsetD32")(lane->word, 0, 1), "memset");
  }
  check(DRIVER(cuCtxSynchronize, "cuCtxSynchronize")(), "synchronize");
  puts("ready");
  fflush(stdout);
  char byte;
  while (read(0, &byte, 1) > 0) {
    for (int i = 0; i < kStreams; i++) submit(&lanes[i]);
    puts("submitted");
    fflush(stdout);
  }
  int right = 0;
  for (int i = 0; i < kStreams; i++) right += read_back(&lanes[i]) == lanes[i].expected;
  printf("right %d\n", right);
  return 0;
}
