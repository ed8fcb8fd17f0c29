// Times launches of a kernel with eight parameters in small groups. Prints nanoseconds per launch
// of each group, one figure per line. The whole process stays on one CPU. It measures three times:
// `before`, `sampled` and `after`. The daemon decides whether launches are sampled: each time, the
// program prints "ready" and begins when it receives a line.
//
//   sample IMAGE GROUPS CPU
#include <unistd.h>

#include "driver.h"

enum { kGroup = 32, kDrainEvery = 8, kWarmUps = 20, kWarmUpUs = 500, kMaxGroups = 4096 };

static decltype(&cuLaunchKernel) launch_kernel;
static decltype(&cuStreamSynchronize) synchronize;

static double group(const Ready* ready) {
  uint64_t value[8] = {0};
  void* values[8];
  for (int i = 0; i < 8; i++) values[i] = &value[i];
  const uint64_t start = now_ns();
  for (int i = 0; i < kGroup; i++)
    check(launch_kernel(ready->eight, 1, 1, 1, 32, 1, 1, 0, ready->stream, values, nullptr),
          "launch");
  return (double)(now_ns() - start) / kGroup;
}

static void launch_groups(const Ready* ready, int groups, double* ns) {
  for (int i = 0; i < groups; i++) {
    if (i % kDrainEvery == 0) check(synchronize(ready->stream), "synchronize");
    ns[i] = group(ready);
  }
}

int main(int argc, char** argv) {
  if (argc != 4 || atoi(argv[2]) > kMaxGroups) return 2;
  stay_on(atoi(argv[3]));
  const Ready ready = make_ready(argv[1]);
  launch_kernel = DRIVER(cuLaunchKernel, "cuLaunchKernel");
  synchronize = DRIVER(cuStreamSynchronize, "cuStreamSynchronize");
  for (int i = 0; i < kWarmUps; i++) {
    (void)group(&ready);
    check(synchronize(ready.stream), "synchronize");
    usleep(kWarmUpUs);
  }
  static const char* const kTimes[] = {"before", "sampled", "after"};
  static double ns[3][kMaxGroups];
  const int groups = atoi(argv[2]);
  for (int time = 0; time < 3; time++) {
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF) return 1;
    launch_groups(&ready, groups, ns[time]);
  }
  for (int time = 0; time < 3; time++)
    for (int i = 0; i < groups; i++) printf("%s %.2f\n", kTimes[time], ns[time][i]);
  return 0;
}
