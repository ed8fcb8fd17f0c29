// Kernels whose cost is known only after their execution: BODY reports it.
#include <algorithm>

#include "check.h"
#include "simulation.h"

using namespace tandem::softgpu;

namespace {

constexpr uint64_t kMs = 1'000'000;

Work told(double ns, const char* name = "k", uint64_t stream = 1, uint64_t blocks = 8) {
  Work work = kernel(ns, name, stream, blocks);
  work.body_tells_cost = true;
  return work;
}

void answer(Simulation& s, uint32_t client, uint64_t op, double flops, double bytes,
            double asleep_ns = 0) {
  Body body{};
  body.op = op;
  body.flops = flops;
  body.bytes = bytes;
  body.asleep_ns = asleep_ns;
  s.send(client, Type::kBody, body);
}

}  // namespace

TEST(a_kernel_lasts_as_long_as_its_body_says_it_cost) {
  Simulation s;
  const uint32_t a = s.join();
  const uint64_t first = s.submit(a, told(kMs)), second = s.submit(a, told(3 * kMs));
  s.run();
  CHECK_EQ(s.done(a, first).end_ns, kMs);
  CHECK_EQ(s.done(a, second).start_ns, kMs);
  CHECK_EQ(s.done(a, second).end_ns, 4 * kMs);
}

TEST(bytes_told_by_the_body_are_timed_and_written_to_the_timeline) {
  Simulation s;
  const uint32_t a = s.join();
  Work work = told(0);
  work.bytes_per_block = kMs;
  const uint64_t op = s.submit(a, work);
  s.run();
  CHECK_EQ(s.done(a, op).end_ns, 8 * kMs);
  CHECK_EQ(s.lines[0].bytes, 8 * kMs);
}

TEST(told_and_declared_costs_give_the_same_timeline) {
  Simulation declared, tells;
  for (Simulation* s : {&declared, &tells}) {
    const uint32_t a = s->join(1), b = s->join(2);
    s->stream(a, 2);
    const bool tell = s == &tells;
    for (const uint32_t who : {a, b}) {
      for (const double ns : {1.5e6, 0.3e6, 5e6}) {
        Work work = tell ? told(ns, "k", 1, 4) : kernel(ns, "k", 1, 4);
        work.needs_body = true;
        work.bytes_per_block = 100'000;
        s->submit(who, work);
        if (who != a) continue;
        work.stream = 2;
        s->submit(who, work);
      }
    }
    s->run();
  }
  CHECK(!declared.timeline.empty());
  CHECK(declared.timeline == tells.timeline);
}

TEST(a_kernel_that_costs_nothing_ends_with_its_body) {
  Simulation s;
  const uint32_t a = s.join();
  const uint64_t op = s.submit(a, told(0));
  s.run();
  CHECK_EQ(s.done(a, op).end_ns, 0u);
}

TEST(a_kernel_lasts_no_less_than_its_blocks_sleep) {
  for (const double asleep_ns : {0.5 * kMs, 3.0 * kMs}) {
    Simulation s;
    const uint32_t a = s.join();
    s.peers[a].executes = false;
    const uint64_t op = s.submit(a, told(kMs));
    s.run();
    answer(s, a, op, 8.0 * kMs, 0, asleep_ns);
    s.run();
    CHECK_EQ(s.done(a, op).end_ns, std::max<uint64_t>(kMs, static_cast<uint64_t>(asleep_ns)));
  }
}

TEST(an_impossible_sleep_disconnects_its_client) {
  Simulation s;
  const uint32_t a = s.join();
  s.peers[a].executes = false;
  const uint64_t op = s.submit(a, told(kMs));
  s.run();
  answer(s, a, op, 0, 0, -1.0);
  CHECK(s.peers[a].closed);
}

TEST(an_impossible_cost_disconnects_its_client) {
  for (const double flops : {-1.0, 0.0 / 0.0}) {
    Simulation s;
    const uint32_t a = s.join();
    s.peers[a].executes = false;
    const uint64_t op = s.submit(a, told(kMs));
    s.run();
    answer(s, a, op, flops, 0);
    CHECK(s.peers[a].closed);
  }
}

TEST(on_the_real_clock_the_time_of_the_body_is_part_of_the_kernel) {
  Settings settings = tiny_settings();
  settings.clock = ClockKind::kReal;
  Simulation s(settings);
  const uint32_t a = s.join();
  s.peers[a].executes = false;
  const uint64_t op = s.submit(a, told(3 * kMs));
  s.real_ns = kMs;
  s.engine.advance(s.real_ns);
  answer(s, a, op, 8.0 * 3 * kMs, 0);
  s.real_ns = 2 * kMs;
  s.engine.advance(s.real_ns);
  s.receive();
  CHECK(s.peers[a].done_of(op) == nullptr);
  s.real_ns = 3 * kMs;
  s.engine.advance(s.real_ns);
  s.receive();
  CHECK_EQ(s.done(a, op).end_ns, 3 * kMs);
}
