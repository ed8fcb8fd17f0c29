// Dependencies, bodies, host work, failures: what happens to an operation between SUBMIT and DONE.
#include "check.h"
#include "simulation.h"

using namespace tandem::softgpu;

namespace {

constexpr uint64_t kMs = 1'000'000;

Work with_body(Work work) {
  work.needs_body = true;
  return work;
}

}  // namespace

TEST(a_dependency_orders_across_streams) {
  Simulation s;
  const uint32_t a = s.join();
  s.stream(a, 2);
  const uint64_t first = s.submit(a, kernel(kMs, "first", 1, 1));
  Work after = kernel(kMs, "after", 2, 1);
  after.deps = {first};
  const uint64_t second = s.submit(a, after);
  s.run();
  CHECK_EQ(s.done(a, second).start_ns, s.done(a, first).end_ns);
}

TEST(a_dependency_on_what_has_ended_or_never_was_is_satisfied) {
  Simulation s;
  const uint32_t a = s.join();
  const uint64_t first = s.submit(a, kernel(kMs));
  s.run();
  Work after = kernel(kMs);
  after.deps = {first, 777, first};
  const uint64_t second = s.submit(a, after);
  s.run();
  CHECK_EQ(s.done(a, second).end_ns, 2 * kMs);
}

TEST(events_and_host_functions_take_no_device_time) {
  Simulation s;
  const uint32_t a = s.join();
  s.submit(a, kernel(kMs));
  const uint64_t event = s.submit(a, of_kind(OpKind::kEvent));
  const uint64_t host = s.submit(a, with_body(of_kind(OpKind::kHostFunc)));
  const uint64_t next = s.submit(a, kernel(kMs));
  s.run();
  CHECK_EQ(s.done(a, event).end_ns, kMs);
  CHECK_EQ(s.done(a, host).end_ns, kMs);
  CHECK_EQ(s.done(a, next).start_ns, kMs);
  CHECK_EQ(s.peers[a].starts.size(), 1u);
}

std::string order_of(const Peer& peer) { return {peer.order.begin(), peer.order.end()}; }

TEST(start_comes_when_the_kernel_begins_and_done_after_its_body) {
  Simulation s;
  const uint32_t a = s.join();
  const uint64_t one = s.submit(a, with_body(kernel(kMs)));
  const uint64_t two = s.submit(a, with_body(of_kind(OpKind::kHostFunc)));
  s.run();
  CHECK_EQ(s.peers[a].starts[0].now_ns, 0u);
  CHECK_EQ(s.peers[a].starts[1].now_ns, kMs);
  CHECK_EQ(s.done(a, one).end_ns, kMs);
  CHECK_EQ(s.done(a, two).end_ns, kMs);
  CHECK(order_of(s.peers[a]) == "SDSD");
}

TEST(bodies_of_a_streams_kernels_are_asked_for_together_and_end_one_after_the_other) {
  Simulation s;
  const uint32_t a = s.join();
  for (int i = 0; i < 3; ++i) s.submit(a, with_body(kernel(kMs)));
  s.submit(a, of_kind(OpKind::kEvent));
  const uint64_t copy = s.submit(a, with_body(of_kind(OpKind::kMemset, 1000)));
  s.run();
  CHECK(order_of(s.peers[a]) == "SSSSDDDDD");
  for (const Start& start : s.peers[a].starts) CHECK_EQ(start.now_ns, 0u);
  CHECK_EQ(s.done(a, copy).start_ns, 3 * kMs);
}

TEST(bodies_are_not_asked_for_ahead_past_a_dependency_or_stream_memory_operation) {
  Simulation s;
  const uint32_t a = s.join();
  s.stream(a, 2);
  const uint64_t slow = s.submit(a, kernel(5 * kMs, "slow", 2, 4));
  s.submit(a, with_body(kernel(kMs, "k", 1, 4)));
  Work after = with_body(kernel(kMs));
  after.deps = {slow};
  s.submit(a, after);
  s.submit(a, of_kind(OpKind::kMemOpWrite));
  s.submit(a, with_body(kernel(kMs)));
  s.run();
  CHECK_EQ(s.peers[a].starts.size(), 3u);
  CHECK_EQ(s.peers[a].starts[1].now_ns, s.done(a, slow).end_ns);
  CHECK_EQ(s.peers[a].starts[2].now_ns, s.done(a, slow).end_ns + kMs);
}

TEST(bodies_are_not_asked_for_ahead_past_a_kernel_that_will_fail) {
  Settings settings = tiny_settings();
  CHECK(settings.faults.parse("hang:bad@1").empty());
  Simulation s(settings);
  const uint32_t a = s.join();
  s.submit(a, with_body(kernel(kMs)));
  s.submit(a, with_body(kernel(kMs, "bad")));
  s.submit(a, with_body(kernel(kMs)));
  s.run();
  CHECK_EQ(s.peers[a].starts.size(), 1u);
}

TEST(a_body_that_is_late_delays_the_end) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  s.peers[a].executes = false;
  const uint64_t op = s.submit(a, with_body(kernel(kMs)));
  s.peers[b].deadline_ns = 3 * kMs;
  s.peers[b].goes_idle = false;
  s.run();
  s.idle(b);
  CHECK(s.peers[a].done_of(op) == nullptr);
  s.send(a, Type::kBody, Body{{}, op, 0, 0, 0});
  s.peers[b].deadline_ns = kNever;
  s.idle(b);
  s.idle(a);
  CHECK_EQ(s.done(a, op).end_ns, 3 * kMs);
}

TEST(a_wait_is_asked_again_until_its_condition_holds) {
  Simulation s;
  const uint32_t a = s.join();
  s.peers[a].executes = false;
  const uint64_t wait = s.submit(a, with_body(of_kind(OpKind::kMemOpWait)));
  s.run();
  CHECK_EQ(s.peers[a].starts.size(), 1u);
  s.peers[a].goes_idle = false;
  s.send(a, Type::kBody, Body{{}, wait, 0, 0, 1});
  s.idle(a);
  CHECK_EQ(s.peers[a].starts.size(), 2u);
  CHECK_EQ(s.peers[a].starts[1].now_ns, 20'000u);
  s.send(a, Type::kBody, Body{{}, wait, 0, 0, 0});
  s.idle(a);
  CHECK_EQ(s.done(a, wait).end_ns, 20'000u);
}

TEST(a_wait_is_asked_again_when_something_of_its_client_ends) {
  Simulation s;
  const uint32_t a = s.join();
  s.stream(a, 2);
  s.peers[a].executes = false;
  const uint64_t wait = s.submit(a, with_body(of_kind(OpKind::kMemOpWait)));
  s.submit(a, kernel(5'000, "writer", 2));
  s.peers[a].goes_idle = false;
  s.idle(a);
  CHECK_EQ(s.peers[a].starts.size(), 1u);
  s.send(a, Type::kBody, Body{{}, wait, 0, 0, 1});
  s.idle(a);
  CHECK_EQ(s.peers[a].starts.at(1).now_ns, 5'000u);
}

TEST(a_failed_body_poisons_its_context_and_nothing_else) {
  Simulation s;
  const uint32_t a = s.join();
  s.context(a, 2);
  s.stream(a, 2, 0, 2);
  s.peers[a].body_status = kLaunchFailed;
  const uint64_t bad = s.submit(a, with_body(kernel(kMs)));
  const uint64_t behind = s.submit(a, kernel(kMs));
  Work other = kernel(kMs, "other", 2);
  other.deps = {behind};
  const uint64_t elsewhere = s.submit(a, other, 2);
  s.run();
  CHECK_EQ(s.done(a, bad).status, +kLaunchFailed);
  CHECK_EQ(s.done(a, behind).status, +kLaunchFailed);
  CHECK_EQ(s.done(a, elsewhere).status, +kSuccess);
  CHECK_EQ(s.peers[a].faults.size(), 1u);
  const uint64_t later = s.submit(a, kernel(kMs));
  s.run();
  CHECK_EQ(s.done(a, later).status, +kLaunchFailed);
}

TEST(under_mps_a_fault_takes_the_whole_group_down) {
  Simulation s(tiny_settings(Mode::kMps));
  const uint32_t a = s.join(1), b = s.join(2);
  s.peers[a].body_status = kLaunchFailed;
  s.submit(a, with_body(kernel(kMs, "bad", 1, 4)));
  const uint64_t innocent = s.submit(b, kernel(5 * kMs, "good", 1, 4));
  s.run();
  CHECK_EQ(s.done(b, innocent).status, +kLaunchFailed);
  CHECK_EQ(s.done(b, innocent).end_ns, kMs);
  CHECK_EQ(s.peers[b].faults.size(), 1u);
}

TEST(destroying_a_context_ends_its_operations) {
  Simulation s;
  const uint32_t a = s.join();
  const uint64_t op = s.submit(a, kernel(kMs)), next = s.submit(a, kernel(kMs));
  s.send(a, Type::kContextDestroy, ContextDestroy{{}, 1});
  s.run();
  CHECK_EQ(s.done(a, op).status, +kContextIsDestroyed);
  CHECK_EQ(s.done(a, next).status, +kContextIsDestroyed);
  const uint64_t late = s.submit(a, kernel(kMs));
  s.run();
  CHECK_EQ(s.done(a, late).status, +kInvalidHandle);
}

TEST(a_destroyed_stream_still_ends_its_work) {
  Simulation s;
  const uint32_t a = s.join();
  const uint64_t op = s.submit(a, kernel(kMs)), next = s.submit(a, kernel(kMs));
  s.send(a, Type::kStreamDestroy, StreamDestroy{{}, 1});
  s.run();
  CHECK_EQ(s.done(a, op).status, +kSuccess);
  CHECK_EQ(s.done(a, next).end_ns, 2 * kMs);
  s.stream(a, 1);  // the number is free again
  const uint64_t again = s.submit(a, kernel(kMs));
  s.run();
  CHECK_EQ(s.done(a, again).end_ns, 3 * kMs);
}

TEST(a_kernel_that_shall_fail_fails_at_its_end) {
  Settings settings = tiny_settings();
  CHECK(settings.faults.parse("launch:vadd@2").empty());
  Simulation s(settings);
  const uint32_t a = s.join();
  const uint64_t good = s.submit(a, with_body(kernel(kMs, "vadd")));
  s.submit(a, with_body(kernel(kMs, "other")));
  const uint64_t bad = s.submit(a, with_body(kernel(kMs, "vadd")));
  s.run();
  CHECK_EQ(s.done(a, good).status, +kSuccess);
  CHECK_EQ(s.done(a, bad).status, +kLaunchFailed);
  CHECK_EQ(s.done(a, bad).end_ns, 3 * kMs);
  CHECK_EQ(s.peers[a].starts.size(), 2u);
}

TEST(a_hanging_kernel_holds_its_context_but_not_the_others) {
  Settings settings = tiny_settings();
  CHECK(settings.faults.parse("hang:stuck@1").empty());
  Simulation s(settings);
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t stuck = s.submit(a, with_body(kernel(kMs, "stuck")));
  const uint64_t op = s.submit(b, kernel(kMs));
  s.run();
  CHECK(s.peers[a].done_of(stuck) == nullptr);
  CHECK_EQ(s.done(b, op).start_ns, 2 * kMs + 200'000);
}

TEST(a_lost_device_takes_every_client_down_and_stays_lost) {
  Settings settings = tiny_settings();
  CHECK(settings.faults.parse("lost:k@1").empty());
  Simulation s(settings);
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t cause = s.submit(a, with_body(kernel(kMs))), other = s.submit(b, kernel(kMs, "b"));
  s.run();
  CHECK_EQ(s.done(a, cause).status, +kDeviceUnavailable);
  CHECK_EQ(s.done(b, other).status, +kDeviceUnavailable);
  const uint32_t late = s.join(3);
  s.run();
  CHECK_EQ(s.peers[late].faults.size(), 1u);
}

TEST(a_slow_copy_lasts_its_factor_longer) {
  Settings settings = tiny_settings();
  CHECK(settings.faults.parse("slow:10@2").empty());
  Simulation s(settings);
  const uint32_t a = s.join();
  for (int i = 0; i < 3; ++i) s.submit(a, of_kind(OpKind::kCopyHtoD, 500'000));
  s.run();
  CHECK_EQ(s.done(a, 1).end_ns, kMs);
  CHECK_EQ(s.done(a, 2).end_ns, 11 * kMs);
  CHECK_EQ(s.done(a, 3).end_ns, 12 * kMs);
}

TEST(unknown_fault_specs_are_named) {
  for (const char* spec : {"oom", "oom@0", "oom@x", "launch@1", "hang:@1", "melt:vadd@1", "oom@1x",
                           "oom:@1", "oom:k@1", "slow@2", "slow:0@1", "slow:fast@1"}) {
    Faults faults;
    CHECK(faults.parse(std::string("oom@3,") + spec).find(spec) != std::string::npos);
  }
}

TEST(packets_carry_many_messages_and_submits_may_leave_out_unused_dependencies) {
  Simulation s;
  const uint32_t a = s.join();
  std::vector<uint8_t> packet;
  for (uint64_t op = 1; op <= 10; ++op) {
    Submit message{};
    const auto size = static_cast<uint16_t>(offsetof(Submit, dep));
    message.header = {static_cast<uint16_t>(Type::kSubmit), size, 0};
    message.op = op;
    message.context = message.stream = 1;
    message.kind = static_cast<uint32_t>(OpKind::kMemset);
    message.bytes = kMs;
    const auto* bytes = reinterpret_cast<const uint8_t*>(&message);
    packet.insert(packet.end(), bytes, bytes + size);
  }
  s.send_bytes(a, packet.data(), packet.size());
  s.run();
  CHECK_EQ(s.done(a, 10).end_ns, 10 * kMs);
}
