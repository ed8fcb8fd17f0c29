// Times launches of a kernel with eight parameters in small groups and prints the nanoseconds a launch
// of each group, one line a figure; the whole process stays on one CPU. Whether they are sampled is the
// daemon's business: it begins once the program says "ready" and is answered with a line.
//
//   sample IMAGE GROUPS CPU
#include <sched.h>
#include <unistd.h>

#include "driver.h"

enum { kGroup = 32, kDrainEvery = 8, kWarmUps = 20, kWarmUpUs = 500 };

static decltype(&cuLaunchKernel) launch_kernel;
static decltype(&cuStreamSynchronize) synchronize;

static double group(const Ready* ready) {
  uint64_t value[8] = {0};
  void* values[8];
  for (int i = 0; i < 8; i++) values[i] = &value[i];
  const uint64_t start = now_ns();
  for (int i = 0; i < kGroup; i++)
    check(launch_kernel(ready->eight, 1, 1, 1, 32, 1, 1, 0, ready->stream, values, nullptr), "launch");
  return (double)(now_ns() - start) / kGroup;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(atoi(argv[3]), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) return perror("sched_setaffinity"), 1;
  const Ready ready = make_ready(argv[1]);
  launch_kernel = DRIVER(cuLaunchKernel, "cuLaunchKernel");
  synchronize = DRIVER(cuStreamSynchronize, "cuStreamSynchronize");
  for (int i = 0; i < kWarmUps; i++) {
    (void)group(&ready);
    check(synchronize(ready.stream), "synchronize");
    usleep(kWarmUpUs);
  }
  puts("ready");
  fflush(stdout);
  if (getchar() == EOF) return 1;
  const int groups = atoi(argv[2]);
  for (int i = 0; i < groups; i++) {
    if (i % kDrainEvery == 0) check(synchronize(ready.stream), "synchronize");
    printf("launch %.2f\n", group(&ready));
  }
  return 0;
}
