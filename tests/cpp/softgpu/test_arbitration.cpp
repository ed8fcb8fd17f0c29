// Which context has the GPU: turns, slices, switches, MPS, priorities.
#include "check.h"
#include "simulation.h"

using namespace tandem::softgpu;

namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSwitchNs = 200'000;

}  // namespace

TEST(operations_of_a_stream_run_in_order) {
  Simulation s;
  const uint32_t a = s.join();
  const uint64_t first = s.submit(a, kernel(kMs));
  const uint64_t second = s.submit(a, kernel(2 * kMs));
  s.run();
  CHECK_EQ(s.done(a, first).start_ns, 0u);
  CHECK_EQ(s.done(a, first).end_ns, kMs);
  CHECK_EQ(s.done(a, second).start_ns, kMs);
  CHECK_EQ(s.done(a, second).end_ns, 3 * kMs);
}

TEST(streams_of_one_context_share_the_sms) {
  Simulation s;
  const uint32_t a = s.join();
  s.stream(a, 2);
  const uint64_t first = s.submit(a, kernel(kMs, "half", 1, 4));
  const uint64_t second = s.submit(a, kernel(kMs, "half", 2, 4));
  s.run();
  CHECK_EQ(s.done(a, first).end_ns, kMs);
  CHECK_EQ(s.done(a, second).end_ns, kMs);
  CHECK_EQ(s.lines[0].sms + s.lines[1].sms, 8u);
}

TEST(a_context_keeps_the_gpu_for_its_slice_while_it_has_kernels) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t a1 = s.submit(a, kernel(kMs, "a")), a2 = s.submit(a, kernel(kMs, "a"));
  const uint64_t a3 = s.submit(a, kernel(kMs, "a")), b1 = s.submit(b, kernel(kMs, "b"));
  s.run();
  CHECK_EQ(s.done(a, a1).end_ns, kMs);
  CHECK_EQ(s.done(a, a2).end_ns, 2 * kMs);  // the slice is over as well
  CHECK_EQ(s.done(b, b1).start_ns, 2 * kMs + kSwitchNs);
  CHECK_EQ(s.done(a, a3).start_ns, 3 * kMs + 2 * kSwitchNs);
  CHECK_EQ(s.lines_of("switch").size(), 2u);
  CHECK_EQ(s.lines_of("switch")[0].end - s.lines_of("switch")[0].start, kSwitchNs);
}

TEST(a_context_without_a_kernel_gives_the_rest_of_its_slice_away) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t a1 = s.submit(a, kernel(kMs / 2, "a")), b1 = s.submit(b, kernel(kMs, "b"));
  s.run();
  CHECK_EQ(s.done(a, a1).end_ns, kMs / 2);
  CHECK_EQ(s.done(b, b1).start_ns, kMs / 2 + kSwitchNs);
}

TEST(a_context_alone_is_neither_cut_nor_switched) {
  Simulation s;
  const uint32_t a = s.join();
  const uint64_t op = s.submit(a, kernel(20 * kMs));
  s.run();
  CHECK_EQ(s.done(a, op).end_ns, 20 * kMs);
  CHECK_EQ(s.lines.size(), 1u);
}

TEST(a_kernel_longer_than_its_slice_is_cut_and_goes_on_later) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t longer = s.submit(a, kernel(5 * kMs, "long"));
  const uint64_t shorter = s.submit(b, kernel(kMs, "short"));
  s.run();
  CHECK_EQ(s.done(b, shorter).start_ns, 2 * kMs + kSwitchNs);
  CHECK_EQ(s.done(b, shorter).end_ns, 3 * kMs + kSwitchNs);
  CHECK_EQ(s.done(a, longer).end_ns, 6 * kMs + 2 * kSwitchNs);
  const std::vector<Line> parts = s.lines_of("kernel");
  CHECK_EQ(parts.size(), 3u);
  CHECK(parts[0].name == "long");
  CHECK_EQ(parts[0].end - parts[0].start, 2 * kMs);
  CHECK(!parts[0].last);
  CHECK_EQ(parts[2].end - parts[2].start, 3 * kMs);
  CHECK_EQ(parts[2].part, 1u);
  CHECK(parts[2].last);
}

TEST(a_kernel_past_its_slice_yields_at_once_to_one_that_comes_late) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t longer = s.submit(a, kernel(10 * kMs, "long"));
  s.peers[b].goes_idle = false;
  s.peers[b].deadline_ns = 5 * kMs;
  s.run();
  s.idle(b);
  CHECK_EQ(s.peers[b].times.back(), 5 * kMs);
  const uint64_t late = s.submit(b, kernel(kMs, "late"));
  s.peers[b].goes_idle = true;
  s.run();
  CHECK_EQ(s.done(b, late).start_ns, 5 * kMs + kSwitchNs);
  CHECK_EQ(s.done(a, longer).end_ns, 11 * kMs + 2 * kSwitchNs);
}

TEST(three_contexts_go_round_in_order_of_their_numbers) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2), c = s.join(3);
  for (int i = 0; i < 3; ++i) {
    s.submit(c, kernel(kMs, "c"));
    s.submit(a, kernel(kMs, "a"));
    s.submit(b, kernel(kMs, "b"));
  }
  s.run();
  std::string order;
  for (const Line& line : s.lines_of("kernel")) order += line.name;
  CHECK(order == "aabbccabc");  // two kernels of 1 ms in each slice
}

TEST(copies_overlap_kernels_of_other_contexts_and_each_other) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t k = s.submit(a, kernel(kMs));
  const uint64_t in = s.submit(b, of_kind(OpKind::kCopyHtoD, 500'000));
  s.stream(b, 2);
  const uint64_t out = s.submit(b, of_kind(OpKind::kCopyDtoH, 250'000, 2));
  s.run();
  CHECK_EQ(s.done(a, k).end_ns, kMs);
  CHECK_EQ(s.done(b, in).end_ns, kMs);  // 0.5 MB at 0.5 GB/s
  CHECK_EQ(s.done(b, out).end_ns, kMs / 2);
  CHECK(s.lines_of("switch").empty());
}

TEST(a_copy_engine_does_one_copy_at_a_time) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t first = s.submit(a, of_kind(OpKind::kCopyHtoD, 500'000));
  const uint64_t second = s.submit(b, of_kind(OpKind::kCopyHtoD, 500'000));
  s.run();
  CHECK_EQ(s.done(a, first).end_ns, kMs);
  CHECK_EQ(s.done(b, second).start_ns, kMs);
  CHECK_EQ(s.done(b, second).end_ns, 2 * kMs);
}

TEST(under_mps_contexts_run_side_by_side_when_sms_are_left) {
  Simulation s(tiny_settings(Mode::kMps));
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t first = s.submit(a, kernel(kMs, "a", 1, 4));
  const uint64_t second = s.submit(b, kernel(kMs, "b", 1, 4));
  s.run();
  CHECK_EQ(s.done(a, first).end_ns, kMs);
  CHECK_EQ(s.done(b, second).end_ns, kMs);
  CHECK(s.lines_of("switch").empty());
}

TEST(under_mps_a_kernel_without_any_sm_waits) {
  Simulation s(tiny_settings(Mode::kMps));
  const uint32_t a = s.join(1), b = s.join(2);
  s.submit(a, kernel(kMs, "full"));
  const uint64_t second = s.submit(b, kernel(kMs, "full"));
  s.run();
  CHECK_EQ(s.done(b, second).start_ns, kMs);
}

TEST(a_percentage_leaves_room_for_the_other_context) {
  Simulation s(tiny_settings(Mode::kMps));
  const uint32_t a = s.greet(1, 0), b = s.greet(2, 0);
  for (const uint32_t c : {a, b}) {
    s.context(c, 1, 50);
    s.stream(c, 1);
  }
  const uint64_t first = s.submit(a, kernel(kMs, "full"));
  const uint64_t second = s.submit(b, kernel(kMs, "full"));
  s.run();
  CHECK_EQ(s.done(a, first).end_ns, 2 * kMs);  // 8 blocks on 4 SMs: two rounds
  CHECK_EQ(s.done(b, second).end_ns, 2 * kMs);
  for (const Line& line : s.lines_of("kernel")) CHECK_EQ(line.sms, 4u);
}

TEST(a_running_kernel_takes_over_the_sms_that_become_free) {
  Simulation s(tiny_settings(Mode::kMps));
  const uint32_t a = s.join(1), b = s.join(2);
  s.submit(a, kernel(kMs, "six", 1, 6));
  const uint64_t wide = s.submit(b, kernel(kMs, "eight"));  // 2 SMs: four rounds of 1 ms
  s.run();
  // It does a quarter of its work in the first millisecond, and the rest at full width.
  CHECK_EQ(s.done(b, wide).end_ns, kMs + kMs * 3 / 4);
  const std::vector<Line> parts = s.lines_of("kernel");
  CHECK_EQ(parts.back().sms, 8u);
}

TEST(an_urgent_stream_takes_the_sms_first) {
  Simulation s;
  const uint32_t a = s.join();
  s.stream(a, 2, -5);
  const uint64_t lazy = s.submit(a, kernel(kMs, "lazy", 1));
  const uint64_t urgent = s.submit(a, kernel(kMs, "urgent", 2));
  s.run();
  CHECK_EQ(s.done(a, urgent).end_ns, kMs);
  CHECK_EQ(s.done(a, lazy).end_ns, 2 * kMs);
}

TEST(memory_bound_kernels_share_the_bandwidth) {
  Simulation s(tiny_settings(Mode::kMps));
  const uint32_t a = s.join(1), b = s.join(2);
  Work work = kernel(0, "stream", 1, 4);
  work.bytes_per_block = 250'000;  // 1 MB: 1 ms if alone
  const uint64_t first = s.submit(a, work), second = s.submit(b, work);
  s.run();
  CHECK_EQ(s.done(a, first).end_ns, 2 * kMs);
  CHECK_EQ(s.done(b, second).end_ns, 2 * kMs);
  CHECK_EQ(s.lines.back().bytes, kMs);
}

TEST(a_copy_inside_the_device_reads_and_writes) {
  Simulation s;
  const uint32_t a = s.join();
  const uint64_t copy = s.submit(a, of_kind(OpKind::kCopyDtoD, kMs));
  const uint64_t set = s.submit(a, of_kind(OpKind::kMemset, kMs));
  s.run();
  CHECK_EQ(s.done(a, copy).end_ns, 2 * kMs);
  CHECK_EQ(s.done(a, set).end_ns, 3 * kMs);
}

TEST(a_killed_client_leaves_the_gpu_to_the_others_at_once) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2), c = s.join(3, kObserver);
  s.submit(a, kernel(1000 * kMs, "endless"));
  const uint64_t op = s.submit(b, kernel(kMs));
  s.peers[c].deadline_ns = kMs;
  s.peers[c].goes_idle = false;
  s.idle(a);
  s.idle(b);
  s.idle(c);  // time stands at 1 ms: the observer has work to do
  s.close(a);
  s.peers[c].deadline_ns = kNever;
  s.idle(c);
  CHECK_EQ(s.done(b, op).start_ns, kMs + kSwitchNs);
  CHECK_EQ(s.done(b, op).end_ns, 2 * kMs + kSwitchNs);
  const Line cut = s.lines_of("kernel").front();
  CHECK_EQ(cut.end, kMs);
  CHECK(cut.last);
}

TEST(devices_work_side_by_side) {
  Settings settings = tiny_settings();
  settings.device_count = 2;
  Simulation s(settings);
  const uint32_t a = s.join(1), b = s.greet(2, 0);
  s.send(b, Type::kContextCreate, ContextCreate{{}, 1, 1, 100});
  s.stream(b, 1);
  const uint64_t here = s.submit(a, kernel(kMs)), there = s.submit(b, kernel(kMs));
  s.run();
  CHECK_EQ(s.done(a, here).end_ns, kMs);
  CHECK_EQ(s.done(b, there).end_ns, kMs);
  CHECK_EQ(s.lines[0].gpu + s.lines[1].gpu, 1u);
}

TEST(a_switch_to_a_client_that_was_killed_meanwhile_goes_on_to_the_next) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2), c = s.join(3), timer = s.join(4);
  s.submit(a, kernel(kMs, "a"));
  s.submit(b, kernel(kMs, "b"));
  const uint64_t op = s.submit(c, kernel(kMs, "c"));
  s.peers[timer].goes_idle = false;
  s.peers[timer].deadline_ns = kMs + kSwitchNs / 2;
  s.idle(timer);
  s.run();
  s.close(b);
  s.idle(timer);
  CHECK_EQ(s.done(c, op).start_ns, kMs + 2 * kSwitchNs);
}

TEST(streams_of_one_context_go_on_until_the_slice_is_over) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  s.stream(a, 2);
  s.submit(a, kernel(kMs, "short", 1, 4));
  const uint64_t next = s.submit(a, kernel(kMs, "next", 1, 4));
  const uint64_t longer = s.submit(a, kernel(1.5 * kMs, "longer", 2, 4));
  const uint64_t other = s.submit(b, kernel(kMs, "b"));
  s.run();
  CHECK_EQ(s.done(a, longer).end_ns, kMs * 3 / 2);
  CHECK_EQ(s.done(a, next).start_ns, kMs);
  CHECK_EQ(s.done(b, other).start_ns, 2 * kMs + kSwitchNs);
}
