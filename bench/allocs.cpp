// Times allocations and frees of one process on the empty driver, by the driver's own function
// (`bare`) and by the one that a program finds, in random order. Prints nanoseconds per call, one
// figure per line. Each figure is the mean of a group of allocations and the frees of all of them.
// `noise` compares the driver's own functions with themselves. The last figure is the cost of one
// rdtsc, which each record needs.
//
//   allocs GROUPS CPU
#include <unistd.h>

#include "driver.h"

enum { kGroup = 64, kMaxGroups = 4096 };

struct Calls {
  decltype(&::cuMemAlloc_v2) alloc;
  decltype(&::cuMemFree_v2) free;
};
static Calls g_bare, g_found;

struct Figure {
  const char* name;
  size_t bytes;
  const Calls* found;
};
// `large` is larger than one piece of a job whose memory is moved.
static const Figure kFigures[] = {
    {"small", 4096, &g_found}, {"large", 33u << 20, &g_found}, {"noise", 4096, &g_bare}};
enum { kFigureCount = sizeof(kFigures) / sizeof(kFigures[0]) };
static double g_ns[kFigureCount][2][kMaxGroups];

static double pairs(const Calls& calls, size_t bytes) {
  static CUdeviceptr made[kGroup];
  const uint64_t start = now_ns();
  for (int i = 0; i < kGroup; i++) check(calls.alloc(&made[i], bytes), "alloc");
  for (int i = 0; i < kGroup; i++) check(calls.free(made[i]), "free");
  return (double)(now_ns() - start) / (2 * kGroup);
}

// Attaches before the process is bound to a CPU, so that the shim's helper thread is not bound.
static void warm_up(void) {
  enum { kRounds = 20, kPauseUs = 500 };
  for (int i = 0; i < kRounds; i++) {
    (void)pairs(g_found, 4096);
    usleep(kPauseUs);
  }
}

int main(int argc, char** argv) {
  const int groups = argc == 3 ? atoi(argv[1]) : 0;
  if (groups < 1 || groups > kMaxGroups) return 2;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) return 1;
  g_found = {(decltype(&::cuMemAlloc_v2))dlsym(driver, "cuMemAlloc_v2"),
             (decltype(&::cuMemFree_v2))dlsym(driver, "cuMemFree_v2")};
  g_bare = {BARE(cuMemAlloc_v2, "cuMemAlloc_v2"), BARE(cuMemFree_v2, "cuMemFree_v2")};
  if (g_found.alloc == g_bare.alloc) return 3;  // no shim: nothing would be measured
  check(((decltype(&cuInit))dlsym(driver, "cuInit"))(0), "cuInit");
  warm_up();
  stay_on(atoi(argv[2]));
  uint32_t draw = 1;
  for (int f = 0; f < kFigureCount; f++) {
    const Figure& figure = kFigures[f];
    (void)pairs(g_bare, figure.bytes), (void)pairs(*figure.found, figure.bytes);
    for (int i = 0; i < groups; i++) {
      const bool bare_first = (draw = draw * 1103515245 + 12345) >> 16 & 1;
      if (bare_first) g_ns[f][0][i] = pairs(g_bare, figure.bytes);
      g_ns[f][1][i] = pairs(*figure.found, figure.bytes);
      if (!bare_first) g_ns[f][0][i] = pairs(g_bare, figure.bytes);
    }
  }
  for (int f = 0; f < kFigureCount; f++) {
    for (int i = 0; i < groups; i++)
      printf("bare_%s %.2f\nfound_%s %.2f\n", kFigures[f].name, g_ns[f][0][i], kFigures[f].name,
             g_ns[f][1][i]);
  }
  printf("rdtsc %.2f\n", rdtsc_ns());
  return 0;
}
