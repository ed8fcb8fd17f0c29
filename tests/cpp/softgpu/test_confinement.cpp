// Streams whose kernels may only use certain SMs: the streams of green contexts.
#include "check.h"
#include "simulation.h"

using namespace tandem::softgpu;

namespace {

constexpr uint64_t kMs = 1'000'000;

void confine(Simulation& s, uint32_t peer, uint64_t stream, uint64_t mask) {
  s.send(peer, Type::kStreamConfine, StreamConfine{{}, stream, {mask, 0, 0, 0}});
}

// Joins a client with streams 1 and 2, both confined.
uint32_t two_confined(Simulation& s, uint64_t mask1, uint64_t mask2) {
  const uint32_t a = s.join();
  s.stream(a, 2);
  confine(s, a, 1, mask1);
  confine(s, a, 2, mask2);
  return a;
}

}  // namespace

TEST(disjoint_sets_overlap_in_time) {
  Simulation s;
  const uint32_t a = two_confined(s, 0x0f, 0xf0);
  const uint64_t first = s.submit(a, kernel(kMs, "k", 1)),
                 second = s.submit(a, kernel(kMs, "k", 2));
  s.run();
  CHECK_EQ(s.done(a, first).start_ns, s.done(a, second).start_ns);
  CHECK_EQ(s.done(a, first).end_ns, 2 * kMs);  // eight blocks on four SMs: two rounds
  CHECK_EQ(s.done(a, second).end_ns, 2 * kMs);
  CHECK(s.lines[0].sm_set == "0-3");
  CHECK(s.lines[1].sm_set == "4-7");
}

TEST(the_same_set_is_shared_and_the_rest_stays_idle) {
  Simulation s;
  const uint32_t a = two_confined(s, 0x0f, 0x0f);
  const uint64_t first = s.submit(a, kernel(kMs, "k", 1)),
                 second = s.submit(a, kernel(kMs, "k", 2));
  s.run();
  CHECK_EQ(s.done(a, first).end_ns, 2 * kMs);
  CHECK_EQ(s.done(a, second).start_ns, 2 * kMs);
  CHECK_EQ(s.done(a, second).end_ns, 4 * kMs);
  for (const Line& line : s.lines) CHECK(line.sm_set == "0-3");
}

TEST(sets_that_overlap_share_only_what_they_have_in_common) {
  Simulation s;
  const uint32_t a = two_confined(s, 0x3f, 0xfc);
  s.submit(a, kernel(kMs, "k", 1, 6));
  s.submit(a, kernel(kMs, "k", 2, 2));
  s.run();
  CHECK(s.lines[0].sm_set == "0-5");
  CHECK(s.lines[1].sm_set == "6-7");
}

TEST(an_unconfined_kernel_leaves_room_for_a_confined_one) {
  Simulation s;
  const uint32_t a = s.join();
  s.stream(a, 2);
  confine(s, a, 2, 0x0f);
  const uint64_t everywhere = s.submit(a, kernel(kMs, "k", 1, 4));
  const uint64_t confined = s.submit(a, kernel(kMs, "k", 2, 4));
  s.run();
  CHECK_EQ(s.done(a, everywhere).start_ns, s.done(a, confined).start_ns);
  CHECK_EQ(s.done(a, everywhere).end_ns, kMs);
  CHECK_EQ(s.done(a, confined).end_ns, kMs);
}

TEST(an_urgent_kernel_takes_idle_sms_before_those_of_others) {
  Simulation s;
  const uint32_t a = s.join();
  s.stream(a, 2, -1);
  const uint64_t first = s.submit(a, kernel(4 * kMs, "k", 1, 4));
  s.peers[a].deadline_ns = kMs;
  s.run();
  s.submit(a, kernel(kMs, "urgent", 2, 4));
  s.run();
  CHECK_EQ(s.done(a, first).end_ns, 4 * kMs);
  CHECK_EQ(s.lines_of("kernel").size(), 2u);  // neither of them was moved
}

TEST(sets_hold_in_mps_mode_across_clients) {
  Simulation s(tiny_settings(Mode::kMps));
  const uint32_t a = s.join(1), b = s.join(2);
  confine(s, a, 1, 0x03);
  confine(s, b, 1, 0xfc);
  s.submit(a, kernel(kMs, "k", 1, 2));
  s.submit(b, kernel(kMs, "k", 1, 6));
  s.run();
  CHECK(s.lines[0].sm_set == "0-1");
  CHECK(s.lines[1].sm_set == "2-7");
  CHECK_EQ(s.lines[1].start, 0u);
}

TEST(a_set_that_the_device_does_not_have_is_refused) {
  for (const uint64_t mask : {uint64_t{0}, uint64_t{0x100}}) {
    Simulation s;
    const uint32_t a = s.join();
    confine(s, a, 1, mask);
    CHECK(s.peers[a].closed);
    CHECK(s.log.find("SMs that the device does not have") != std::string::npos);
  }
  Simulation s;
  const uint32_t a = s.join();
  s.submit(a, kernel(kMs));
  confine(s, a, 1, 1);
  CHECK(s.peers[a].closed);
}
