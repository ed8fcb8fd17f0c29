// Times single launches with cold caches on the empty driver, by its own function (`bare`) and by
// the one that a program finds. Before each launch so much other code and data is touched that
// nothing of the shim is left in the first caches. Each launch ends with a fence, as a driver's
// write to the card's doorbell does: there a store that waits for its cache line delays the launch.
// Prints nanoseconds, one line per launch.
//
//   cold LAUNCHES CPU
#include <string.h>
#include <sys/mman.h>

#include "driver.h"

// Between two launches run kCode functions, each in a cache line of its own.
enum { kLine = 64, kCode = 4096, kData = 1024, kMaxLaunches = 8192, kWarmUps = 2000 };

typedef void (*Nothing)(void);

static char* g_code;
static volatile char g_data[kData * kLine];
static unsigned short g_order[kCode];
static uint32_t g_draw = 1;

static uint32_t draw(void) { return (g_draw = g_draw * 1103515245 + 12345) >> 16; }

static void make_other_code(void) {
  g_code = (char*)mmap(nullptr, kCode * kLine, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                       -1, 0);
  if (g_code == MAP_FAILED) exit(1);
  memset(g_code, 0xc3, kCode * kLine);  // ret
  if (mprotect(g_code, kCode * kLine, PROT_READ | PROT_EXEC) != 0) exit(1);
  for (int i = 0; i < kCode; i++) g_order[i] = (unsigned short)i;
  for (int i = kCode - 1; i > 0; i--) {
    const int other = (int)(draw() % (uint32_t)(i + 1));
    const unsigned short held = g_order[i];
    g_order[i] = g_order[other], g_order[other] = held;
  }
}

static void run_other_code(void) {
  for (int i = 0; i < kCode; i++) ((Nothing)(g_code + g_order[i] * kLine))();
  for (int i = 0; i < kData; i++) g_data[i * kLine]++;
}

static double launch(decltype(&cuLaunchKernel) call, double ns_a_tick) {
  run_other_code();
  __builtin_ia32_mfence();
  const uint64_t start = __builtin_ia32_rdtsc();
  check(call((CUfunction)0x4000, 1, 1, 1, 32, 1, 1, 0, (CUstream)0x1000, nullptr, nullptr),
        "launch");
  __builtin_ia32_mfence();
  return (double)(__builtin_ia32_rdtsc() - start) * ns_a_tick;
}

static double ns_of_a_tick(void) {
  const uint64_t start_ns = now_ns(), start = __builtin_ia32_rdtsc();
  while (now_ns() - start_ns < 20000000) continue;
  return (double)(now_ns() - start_ns) / (double)(__builtin_ia32_rdtsc() - start);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int launches = atoi(argv[1]);
  if (launches < 1 || launches > kMaxLaunches) return 2;
  stay_on(atoi(argv[2]));
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  check(((decltype(&cuInit))dlsym(driver, "cuInit"))(0), "cuInit");
  const auto found = (decltype(&cuLaunchKernel))dlsym(driver, "cuLaunchKernel");
  const auto bare = BARE(cuLaunchKernel, "cuLaunchKernel");
  if (getenv("LD_PRELOAD") != nullptr && found == bare) {
    fprintf(stderr, "the bare function is the shim's\n");
    return 3;
  }
  make_other_code();
  const double ns_a_tick = ns_of_a_tick();
  for (int i = 0; i < kWarmUps; i++) (void)launch(found, ns_a_tick);
  static double bare_ns[kMaxLaunches], found_ns[kMaxLaunches];
  for (int i = 0; i < launches; i++) {
    const bool bare_first = draw() & 1;
    if (bare_first) bare_ns[i] = launch(bare, ns_a_tick);
    found_ns[i] = launch(found, ns_a_tick);
    if (!bare_first) bare_ns[i] = launch(bare, ns_a_tick);
  }
  for (int i = 0; i < launches; i++) printf("bare %.1f\nfound %.1f\n", bare_ns[i], found_ns[i]);
  return 0;
}
