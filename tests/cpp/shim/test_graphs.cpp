#include <thread>

#include "check.h"
#include "durations.h"
#include "gate.h"
#include "pages.h"
#include "segments.h"
#include "slots.h"
#include "submit.h"

using namespace pages;
using shm::WaitReason;

namespace {

constexpr uint32_t kTurn = 7, kOtherTurn = 8;

Submission graph(uint64_t executable, uint64_t stream) {
  Submission submission;
  submission.kind = shm::RecordKind::kGraph;
  submission.stream = stream;
  submission.object = executable;
  submission.measured = true;
  submission.alone = true;
  return submission;
}

void launch(Channel* channel, uint64_t executable, uint64_t stream) {
  const Submission submission = graph(executable, stream);
  const Ticket ticket = prepare(*channel, submission);
  finish(ticket, submission, true);
}

// Makes a channel with that window whose GPU stands still, and submits one graph.
Channel* with_one_in_flight(uint32_t window) {
  make_driver();
  Channel* channel = make_channel();
  command_of(channel).gate.window_segments = window;
  g_seen.gpu_held = true;
  launch(channel, 0x9100, 5);
  return channel;
}

}  // namespace

TEST(one_graph_is_in_flight_where_there_is_a_window) {
  Channel* channel = with_one_in_flight(8);
  std::atomic<bool> through{false};
  std::thread other([&] {
    launch(channel, 0x9200, 6);  // another graph in another stream
    through = true;
  });
  while (channel->state->waits.waiting_threads == 0) std::this_thread::yield();
  CHECK(channel->state->waits.reason == static_cast<uint32_t>(WaitReason::kWindow));
  CHECK(!through);
  CHECK(channel->gate.obstacle(kNoSlot) == WaitReason::kNone);  // kernels have room
  channel->slots[0].done.store(channel->slots[0].issued, std::memory_order_release);
  other.join();
  CHECK_EQ(channel->slots[1].issued.load(), 1u);
}

TEST(without_a_window_graphs_do_not_wait_for_each_other) {
  Channel* channel = with_one_in_flight(0);
  launch(channel, 0x9200, 6);
  CHECK_EQ(channel->state->waits.total_ns[static_cast<uint32_t>(WaitReason::kWindow)].load(), 0u);
  CHECK_EQ(channel->slots[1].issued.load(), 1u);
}

TEST(a_graph_that_never_ends_lets_the_next_one_in_after_a_while) {
  Channel* channel = with_one_in_flight(8);
  launch(channel, 0x9200, 6);  // the first may be waiting for it
  CHECK(channel->state->waits.total_ns[static_cast<uint32_t>(WaitReason::kWindow)] > 200'000'000);
}

TEST(a_stream_that_was_settled_without_its_marker_has_no_graph_in_flight) {
  make_driver();
  Channel* channel = make_channel();
  command_of(channel).gate.window_segments = 8;
  channel->gate.slot_end = 1;
  channel->slots[0].open = 1;  // its marker was not put in: the next one stands for both
  CHECK_EQ(channel->gate.admit_graph(0, kTurn).ns, 0u);
  channel->gate.end_graph_turn(kTurn, 0, true);
  std::thread other([&] { channel->gate.admit_graph(0, kOtherTurn); });
  while (channel->state->waits.waiting_threads == 0) std::this_thread::yield();
  channel->slots[0].open.store(0, std::memory_order_release);
  other.join();
}

TEST(a_graph_that_is_on_its_way_to_the_driver_counts_as_in_flight) {
  make_driver();
  Channel* channel = make_channel();
  command_of(channel).gate.window_segments = 8;
  CHECK_EQ(channel->gate.admit_graph(kNoSlot, kTurn).ns, 0u);
  std::thread other([&] { channel->gate.admit_graph(kNoSlot, kOtherTurn); });
  while (channel->state->waits.waiting_threads == 0) std::this_thread::yield();
  channel->gate.end_graph_turn(kTurn, kNoSlot, false);  // the driver has refused it
  other.join();
}

TEST(a_destroyed_graph_leaves_nothing_to_the_next_one_of_its_address) {
  const uint64_t key = DurationTable::key_of(0x9300, 0);
  Duration* first = g_durations.find(key);
  first->seen = 3;
  const uint32_t age = first->age;
  DurationTable::measured(*first, 5'000'000, age);
  CHECK_EQ(first->ns.load(), 5'000'000u);

  g_durations.forget(key);
  Duration* second = g_durations.find(key);
  CHECK_EQ(second->ns.load() + second->seen.load() + second->samples.load(), 0u);
  DurationTable::measured(*second, 5'000'000, age);  // of a launch before the destruction
  CHECK_EQ(second->samples.load(), 0u);
}

TEST(a_changed_graph_is_measured_anew_with_what_it_took_as_the_first_guess) {
  const uint64_t key = DurationTable::key_of(0x9400, 0);
  Duration* duration = g_durations.find(key);
  for (int i = 0; i < 3; ++i) DurationTable::measured(*duration, 9'000, duration->age);
  g_durations.doubt(key);
  CHECK_EQ(duration->ns.load(), 9'000u);
  CHECK_EQ(duration->samples.load(), 0u);
  DurationTable::measured(*duration, 800'000, duration->age);  // not averaged with the old ones
  CHECK_EQ(duration->ns.load(), 800'000u);
}

TEST(any_number_of_graphs_may_come_and_go) {
  for (uint64_t i = 0; i < 20'000; ++i) {
    const uint64_t key = DurationTable::key_of(0x500000 + i * 64, 0);
    CHECK(g_durations.find(key) != nullptr);
    g_durations.forget(key);
  }
}
