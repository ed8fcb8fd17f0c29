// Fibers preserve what a called function must preserve, whichever fibers ran meanwhile.
#include "tandem_fiber.h"

#include <fenv.h>

#include <cstdlib>
#include <vector>

#include "check.h"

namespace {

using tandem::FiberContext;

constexpr size_t kStackBytes = 64 * 1024;
constexpr int kFibers = 8, kRounds = 100;

FiberContext g_main;
struct Fiber {
  FiberContext context;
  std::vector<char> stack;
  double sum = 0;
  int rounds = 0;
  uintptr_t misaligned = 0;
} g_fibers[kFibers];
int g_running;

void yield() { tandem::switch_fiber(&g_fibers[g_running].context, &g_main); }

// Keeps more values live across every switch than there are registers.
void body() {
  Fiber& self = g_fibers[g_running];
  alignas(16) volatile char aligned[16];
  self.misaligned = reinterpret_cast<uintptr_t>(aligned) % 16;
  double a = g_running, b = a + 1, c = a + 2, d = a + 3;
  long i = g_running, j = i * 3, k = i * 5, l = i * 7, m = i * 11, n = i * 13;
  for (self.rounds = 0; self.rounds < kRounds; ++self.rounds) {
    yield();
    a += b;
    c += d;
    i += j + k;
    l += m + n;
  }
  self.sum = a + c + static_cast<double>(i + l);
  for (;;) yield();
}

double expected(int number) {
  const double a = number, l = number;
  return a + kRounds * (a + 1) + (a + 2) + kRounds * (a + 3) + l + kRounds * 8 * l + 7 * l +
         kRounds * 24 * l;
}

}  // namespace

TEST(fibers_keep_their_values_while_others_run) {
  for (Fiber& fiber : g_fibers) {
    fiber.stack.resize(kStackBytes);
    tandem::prepare_fiber(&fiber.context, fiber.stack.data(), kStackBytes, body);
  }
  for (int round = 0; round <= kRounds; ++round) {
    for (g_running = 0; g_running < kFibers; ++g_running) {
      tandem::switch_fiber(&g_main, &g_fibers[g_running].context);
    }
  }
  for (int i = 0; i < kFibers; ++i) {
    CHECK_EQ(g_fibers[i].rounds, kRounds);
    CHECK_EQ(g_fibers[i].sum, expected(i));
    CHECK_EQ(g_fibers[i].misaligned, uintptr_t{0});
  }
}

TEST(a_fiber_can_be_used_again) {
  Fiber& fiber = g_fibers[0];
  fiber.stack.resize(kStackBytes);
  for (int i = 0; i < 3; ++i) {
    tandem::prepare_fiber(&fiber.context, fiber.stack.data(), kStackBytes, body);
    g_running = 0;
    tandem::switch_fiber(&g_main, &fiber.context);
    CHECK_EQ(fiber.rounds, 0);
  }
}

TEST(a_fiber_rounds_as_the_thread_that_made_it) {
  static int mode = -1;
  Fiber& fiber = g_fibers[1];
  fiber.stack.resize(kStackBytes);
  fesetround(FE_UPWARD);
  tandem::prepare_fiber(&fiber.context, fiber.stack.data(), kStackBytes, [] {
    mode = fegetround();
    for (;;) yield();
  });
  g_running = 1;
  tandem::switch_fiber(&g_main, &fiber.context);
  fesetround(FE_TONEAREST);
#if !defined(__aarch64__)  // there the rounding mode belongs to the thread
  CHECK_EQ(mode, FE_UPWARD);
#endif
  CHECK(mode != -1);
}
