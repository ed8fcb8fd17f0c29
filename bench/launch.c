// Times launches of an empty kernel in small groups and prints the nanoseconds a launch of each
// group, one line a figure: `launch` and `query` (a launch and a cuStreamQuery, before which the shim
// closes its segment with a marker), then the cost of one rdtsc.
//
//   launch IMAGE GROUPS
#include <x86intrin.h>

#include "driver.h"

enum { kGroup = 32, kDrainEvery = 16 };

static decltype(&cuLaunchKernel) launch_kernel;
static decltype(&cuStreamQuery) stream_query;
static decltype(&cuStreamSynchronize) synchronize;

static void launch(const Ready* ready) {
  check(launch_kernel(ready->noop, 1, 1, 1, 32, 1, 1, 0, ready->stream, nullptr, nullptr), "launch");
}

static double group(const Ready* ready, bool query) {
  const uint64_t start = now_ns();
  for (int i = 0; i < kGroup; i++) {
    launch(ready);
    if (query) (void)stream_query(ready->stream);
  }
  return (double)(now_ns() - start) / kGroup;
}

// Prints one group a line. The queue is emptied outside the timing, so that it never fills.
static void figures(const Ready* ready, const char* name, bool query, int groups) {
  for (int i = 0; i < groups; i++) {
    if (i % kDrainEvery == 0) check(synchronize(ready->stream), "synchronize");
    printf("%s %.2f\n", name, group(ready, query));
  }
}

static double rdtsc_ns(void) {
  enum { kReads = 1000000 };
  uint64_t sum = 0;
  const uint64_t start = now_ns();
  for (int i = 0; i < kReads; i++) sum += __rdtsc();
  const double each = (double)(now_ns() - start) / kReads;
  return sum == 0 ? 0 : each;  // the sum keeps the compiler from dropping the reads
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int groups = atoi(argv[2]);
  const Ready ready = make_ready(argv[1]);
  launch_kernel = DRIVER(cuLaunchKernel, "cuLaunchKernel");
  stream_query = DRIVER(cuStreamQuery, "cuStreamQuery");
  synchronize = DRIVER(cuStreamSynchronize, "cuStreamSynchronize");
  for (int i = 0; i < 64; i++) (void)group(&ready, false);  // attach, samples, caches
  figures(&ready, "launch", false, groups);
  figures(&ready, "query", true, groups / 4);
  printf("rdtsc %.2f\n", rdtsc_ns());
  return 0;
}
