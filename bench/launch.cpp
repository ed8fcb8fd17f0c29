// Times launches of an empty kernel in small groups, alternately by the functions that a program
// finds (`found`) and bypassing whatever is preloaded (`bare`). Prints nanoseconds per launch of
// each group, one figure per line. With `_query` each launch is followed by a cuStreamQuery, before
// which the shim closes its segment with a marker. The last figure is the cost of one rdtsc. The
// whole process stays on one CPU.
//
//   launch IMAGE GROUPS CPU
#include <unistd.h>

#include "driver.h"

enum {
  kGroup = 32,
  kDrainEvery = 8,
  kMaxGroups = 4096,
  kWarmUps = 20,
  kQueryGroups = 16,
  kWarmUpUs = 500
};

// The timed calls, as a program finds them or as the driver has them.
struct Calls {
  decltype(&cuLaunchKernel) launch_kernel;
  decltype(&cuStreamQuery) stream_query;
};

static decltype(&cuStreamSynchronize) synchronize;

static double group(const Ready* ready, const Calls* calls, bool query) {
  const uint64_t start = now_ns();
  for (int i = 0; i < kGroup; i++) {
    check(calls->launch_kernel(ready->noop, 1, 1, 1, 32, 1, 1, 0, ready->stream, nullptr, nullptr),
          "launch");
    if (query) (void)calls->stream_query(ready->stream);
  }
  return (double)(now_ns() - start) / kGroup;
}

// The queue is drained outside the timing, so that it never fills. An untimed group follows,
// because the first group after anything else is a tenth slower. Which of the two goes first is
// random: the driver has rhythms of its own, and strict alternation could fall in step with them.
static void figures(const Ready* ready, const Calls* bare, const Calls* found, bool query,
                    int groups) {
  static double bare_ns[kMaxGroups], found_ns[kMaxGroups];
  uint32_t draw = 1;
  for (int i = 0; i < groups; i++) {
    if (i % kDrainEvery == 0) {
      check(synchronize(ready->stream), "synchronize");
      (void)group(ready, bare, query);
    }
    const bool bare_first = (draw = draw * 1103515245 + 12345) >> 16 & 1;
    if (bare_first) bare_ns[i] = group(ready, bare, query);
    found_ns[i] = group(ready, found, query);
    if (!bare_first) bare_ns[i] = group(ready, bare, query);
  }
  const char* suffix = query ? "_query" : "";
  for (int i = 0; i < groups; i++)
    printf("bare%s %.2f\nfound%s %.2f\n", suffix, bare_ns[i], suffix, found_ns[i]);
}

// Attaches, and gives the shim's helper thread time to read its first measurements, so that the
// function is already known when the timing starts.
static void warm_up(const Ready* ready, const Calls* found) {
  for (int i = 0; i < kWarmUps; i++) {
    (void)group(ready, found, false);
    check(synchronize(ready->stream), "synchronize");
    usleep(kWarmUpUs);
  }
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int groups = atoi(argv[2]);
  if (groups > kMaxGroups) return 2;
  stay_on(atoi(argv[3]));  // before the driver and the shim start threads
  const Ready ready = make_ready(argv[1]);
  const Calls found = {DRIVER(cuLaunchKernel, "cuLaunchKernel"),
                       DRIVER(cuStreamQuery, "cuStreamQuery")};
  const Calls bare = {BARE(cuLaunchKernel, "cuLaunchKernel"), BARE(cuStreamQuery, "cuStreamQuery")};
  if (getenv("LD_PRELOAD") != nullptr && found.launch_kernel == bare.launch_kernel) {
    fprintf(stderr, "the bare function is the shim's\n");
    return 3;
  }
  synchronize = DRIVER(cuStreamSynchronize, "cuStreamSynchronize");
  warm_up(&ready, &found);
  figures(&ready, &bare, &found, false, groups);
  figures(&ready, &bare, &found, true, kQueryGroups);
  printf("rdtsc %.2f\n", rdtsc_ns());
  return 0;
}
