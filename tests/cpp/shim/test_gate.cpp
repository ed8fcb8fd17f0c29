#include "gate.h"

#include <pthread.h>

#include <csignal>
#include <thread>

#include "check.h"
#include "pages.h"
#include "wait.h"

using namespace pages;
using shm::WaitReason;

namespace {

// Waits until a thread waits for `reason`. It may not have paused yet, and then never does.
void until_waiting(Channel* channel, WaitReason reason) {
  while (channel->state->waits.waiting_threads == 0) std::this_thread::yield();
  CHECK(channel->state->waits.reason == static_cast<uint32_t>(reason));
}

std::atomic<int> g_signals{0};  // handled so far

// Sends a signal and keeps the daemon alive, however long a busy machine takes.
void send_signal(Channel* channel, std::thread& thread) {
  command_of(channel).heartbeat.tick_ns = g_clock.now_ns();
  std::signal(SIGUSR1, [](int) { ++g_signals; });
  pthread_kill(thread.native_handle(), SIGUSR1);
  std::this_thread::yield();
}

void send_many_signals(Channel* channel, std::thread& thread) {
  for (const int enough = g_signals + 1'000; g_signals < enough;) send_signal(channel, thread);
}

// Sends signals until they have had their effect; only the test's time limit ends a failure.
template <class Fact>
void send_signals_until(Channel* channel, std::thread& thread, Fact fact) {
  while (!fact()) send_signal(channel, thread);
}

void open_gate(Channel* channel) {
  auto& gate = command_of(channel).gate.gate;
  gate = 4;
  futex_wake_all(gate);
}

}  // namespace

TEST(an_open_gate_lets_everything_pass) {
  Channel* channel = make_channel();
  CHECK(channel->gate.obstacle(kNoSlot) == WaitReason::kNone);
  CHECK_EQ(channel->gate.admit(kNoSlot).ns, 0u);
}

TEST(a_closed_gate_holds_until_it_opens) {
  Channel* channel = make_channel();
  auto& gate = command_of(channel).gate.gate;
  gate = 2 | shm::kGateHold;
  std::atomic<bool> through{false};
  std::thread waiter([&] {
    channel->gate.admit(kNoSlot);
    through = true;
  });
  until_waiting(channel, WaitReason::kGate);
  CHECK(!through);
  CHECK_EQ(channel->state->control.gate_seen.load(), 2 | shm::kGateHold);
  gate = 4;
  futex_wake_all(gate);
  waiter.join();
  CHECK_EQ(channel->state->waits.waiting_threads.load(), 0u);
}

TEST(a_signal_lets_its_thread_through_a_closed_gate_and_not_for_long) {
  Channel* channel = make_channel();
  command_of(channel).gate.gate = 2 | shm::kGateHold;
  std::atomic<uint64_t> through{0};
  const uint64_t start = g_clock.now_ns();
  std::thread waiter([&] {
    for (Pass pass; through < 10'000; ++through) channel->gate.admit(kNoSlot, &pass);
  });
  until_waiting(channel, WaitReason::kGate);
  send_signals_until(channel, waiter, [&] { return through != 0; });
  send_many_signals(channel, waiter);
  const uint64_t passed = through;  // read before the time, so no more had passed by then
  const uint64_t seconds_begun = (g_clock.now_ns() - start) / 1'000'000'000 + 1;
  CHECK(passed <= 16 * seconds_begun);
  open_gate(channel);
  waiter.join();
}

TEST(a_signal_lets_its_thread_past_a_busy_peer) {
  Channel* channel = make_channel();
  static shm::PresencePage peer;
  peer.busy_until_ns = g_clock.now_ns() + 3'600'000'000'000;
  channel->gate.peers().page[5] = &peer;
  command_of(channel).gate.presence_mask = 1u << 5;
  std::atomic<bool> through{false};
  std::thread waiter([&] {
    Pass pass;
    channel->gate.admit(kNoSlot, &pass);
    through = true;
  });
  until_waiting(channel, WaitReason::kPresence);
  send_signals_until(channel, waiter, [&] { return through.load(); });
  waiter.join();
}

TEST(a_signal_lets_one_graph_through_a_closed_gate_and_none_through_the_window) {
  Channel* channel = make_channel();
  channel->gate.slot_end = 1;
  command_of(channel).gate.window_segments = 1;
  command_of(channel).gate.gate = 2 | shm::kGateHold;
  channel->slots[0].issued = 1;
  Pass pass;
  std::atomic<bool> through{false};
  std::thread waiter([&] {
    channel->gate.admit_graph(0, 7, &pass);
    through = true;
  });
  until_waiting(channel, WaitReason::kGate);
  const auto& reason = channel->state->waits.reason;
  send_signals_until(channel, waiter,
                     [&] { return reason == static_cast<uint32_t>(WaitReason::kWindow); });
  CHECK(!through);
  channel->slots[0].done.store(1, std::memory_order_release);
  send_signals_until(channel, waiter, [&] { return through.load(); });  // the pass may be used up
  waiter.join();
  CHECK_EQ(pass.left, 0u);
}

TEST(no_signal_lets_a_thread_through_to_memory_that_is_not_there_or_is_others) {
  Channel* channel = make_channel();
  command_of(channel).gate.gate = 2 | shm::kGateHold;
  command_of(channel).memory.lane = shm::kLaneHolds;
  channel->state->swap.swapped_bytes = 1;
  std::atomic<bool> through{false};
  std::thread submitter([&] {
    Pass pass;
    channel->gate.admit(kNoSlot, &pass);
    through = true;
  });
  std::thread allocator([&] {
    channel->gate.admit_memory();
    through = true;
  });
  while (channel->state->waits.waiting_threads < 2) std::this_thread::yield();
  send_many_signals(channel, submitter);
  send_many_signals(channel, allocator);
  CHECK(!through);
  channel->state->swap.swapped_bytes = 0;
  send_signals_until(channel, submitter, [&] { return through.load(); });
  submitter.join();
  open_gate(channel);
  allocator.join();
}

TEST(memory_is_held_by_the_gate_of_who_is_in_a_lane_and_by_nothing_else) {
  Channel* channel = make_channel();
  auto& command = command_of(channel).gate;
  command.window_segments = 1;
  channel->slots[0].issued = 9;
  channel->gate.slot_end = 1;
  CHECK_EQ(channel->gate.admit_memory().ns, 0u);  // even if the window is full
  command.gate = 2 | shm::kGateHold;
  CHECK_EQ(channel->gate.admit_memory().ns, 0u);
  command_of(channel).memory.lane = shm::kLaneHolds;
  std::thread waiter([&] { channel->gate.admit_memory(); });
  until_waiting(channel, WaitReason::kGate);
  command.gate = 4;
  futex_wake_all(command.gate);
  waiter.join();
}

TEST(a_lost_daemon_releases_every_waiter) {
  Channel* channel = make_channel();
  command_of(channel).gate.gate = shm::kGateHold;
  std::thread waiters[4];
  for (std::thread& waiter : waiters) waiter = std::thread([&] { channel->gate.admit(kNoSlot); });
  while (channel->state->waits.waiting_threads < 4) std::this_thread::yield();
  channel->gate.lose();
  for (std::thread& waiter : waiters) waiter.join();
}

TEST(a_process_stops_at_the_step_it_was_told_and_goes_on_when_it_may_do_another) {
  Channel* channel = make_channel();
  shm::CommandGate& gate = command_of(channel).gate;
  std::atomic<uint64_t>& stopped = channel->state->iterations.stopped[0];
  stopped = 6;
  gate.mark_limit = 7;
  CHECK(channel->gate.obstacle(kNoSlot) == WaitReason::kNone);
  stopped = 7;
  std::thread waiter([&] { channel->gate.admit(kNoSlot); });
  until_waiting(channel, WaitReason::kGate);
  gate.mark_limit = 8;
  gate.gate = 2;
  futex_wake_all(gate.gate);
  waiter.join();
  stopped = 8;
  gate.flags = shm::kFlagReleased;
  CHECK(channel->gate.obstacle(kNoSlot) == WaitReason::kNone);
}

TEST(who_stands_at_the_end_of_an_iteration_gets_no_memory) {
  Channel* channel = make_channel();
  shm::CommandGate& gate = command_of(channel).gate;
  gate.mark_limit = 7;
  channel->state->iterations.stopped[0] = 7;
  std::thread waiter([&] { channel->gate.admit_memory(); });
  until_waiting(channel, WaitReason::kGate);
  gate.mark_limit = 8;
  gate.gate = 2;
  futex_wake_all(gate.gate);
  waiter.join();
}

TEST(who_stands_at_a_limit_does_not_wait_for_a_daemon_that_is_gone) {
  Channel* channel = make_channel();
  command_of(channel).gate.mark_limit = shm::mark_limit_of(shm::LimitKind::kPhase, 1);
  channel->state->iterations.stopped[1] = 1;
  std::thread waiter([&] { channel->gate.admit(kNoSlot); });
  until_waiting(channel, WaitReason::kGate);
  channel->gate.lose();
  waiter.join();
  command_of(channel).gate.mark_limit = 0;
  CHECK(channel->gate.obstacle(kNoSlot) == WaitReason::kNone);
}

TEST(an_old_tick_means_nobody_is_there) {
  Channel* channel = make_channel();
  command_of(channel).gate.gate = shm::kGateHold;
  command_of(channel).heartbeat.stale_ns = 1;
  channel->gate.admit(kNoSlot);
  CHECK_EQ(channel->state->control.ungated.load(), 1u);
}

TEST(a_tick_from_the_far_future_is_garbage) {
  Channel* channel = make_channel();
  command_of(channel).heartbeat.tick_ns = UINT64_MAX;
  CHECK(channel->gate.stale());
}

TEST(a_released_process_is_not_held) {
  Channel* channel = make_channel();
  command_of(channel).gate.gate = shm::kGateHold;
  command_of(channel).gate.flags = shm::kFlagReleased;
  CHECK(channel->gate.obstacle(kNoSlot) == WaitReason::kNone);
}

TEST(a_busy_peer_in_the_mask_stands_in_the_way_and_others_do_not) {
  Channel* channel = make_channel();
  static shm::PresencePage peer;
  peer.busy_until_ns = g_clock.now_ns() + 3'600'000'000'000;
  channel->gate.peers().page[5] = &peer;
  CHECK(channel->gate.obstacle(kNoSlot) == WaitReason::kNone);
  command_of(channel).gate.presence_mask = 1u << 5 | 1u << 9;  // nobody has index 9
  CHECK(channel->gate.obstacle(kNoSlot) == WaitReason::kPresence);
  command_of(channel).gate.flags = 0;
  CHECK(channel->gate.obstacle(kNoSlot) == WaitReason::kNone);
}

TEST(a_peer_that_gets_idle_wakes_who_waits_for_it) {
  Channel* channel = make_channel();
  static shm::PresencePage peer;
  peer.busy_until_ns = g_clock.now_ns() + 3'600'000'000'000;
  channel->gate.peers().page[0] = &peer;
  command_of(channel).gate.presence_mask = 1;
  std::thread waiter([&] { channel->gate.admit(kNoSlot); });
  until_waiting(channel, WaitReason::kPresence);
  peer.busy_until_ns = g_clock.now_ns();
  futex_wake_all(low_half(peer.busy_until_ns));
  waiter.join();
}

TEST(the_window_counts_unfinished_segments_of_all_streams) {
  Channel* channel = make_channel();
  channel->gate.slot_end = 3;
  command_of(channel).gate.window_segments = 2;
  channel->slots[0].issued = 7;
  channel->slots[0].done = 6;
  CHECK(channel->gate.obstacle(kNoSlot) == WaitReason::kNone);
  channel->slots[2].issued = 1;
  CHECK(channel->gate.obstacle(kNoSlot) == WaitReason::kWindow);
  channel->slots[0].done = 9;  // ahead of issued for a moment: the marker overtook us
  CHECK(channel->gate.obstacle(kNoSlot) == WaitReason::kNone);
}

TEST(a_stream_at_work_gets_its_next_segment_only_when_the_last_is_nearly_done) {
  Channel* channel = make_channel();
  channel->gate.slot_end = 2;
  command_of(channel).gate.window_segments = 2;
  command_of(channel).gate.segment_ns = 100'000;
  channel->slots[0].issued = 1;
  channel->slots[0].predicted_end_ns = g_clock.now_ns() + 3'600'000'000'000;
  CHECK(channel->gate.obstacle(0) == WaitReason::kWindow);
  CHECK(channel->gate.obstacle(1) == WaitReason::kNone);  // another stream may overlap it
  channel->slots[0].predicted_end_ns = g_clock.now_ns() + 90'000;
  CHECK(channel->gate.obstacle(0) == WaitReason::kNone);
  channel->slots[0].predicted_end_ns = UINT64_MAX;  // nonsense, but it has ended
  channel->slots[0].done = 1;
  CHECK(channel->gate.obstacle(0) == WaitReason::kNone);
  command_of(channel).gate.window_segments = 0;
  channel->slots[0].done = 0;
  CHECK(channel->gate.obstacle(0) == WaitReason::kNone);  // without a window it is unlimited
}

TEST(a_prediction_that_is_far_too_long_does_not_hold_a_thread_for_ever) {
  Channel* channel = make_channel();
  channel->gate.slot_end = 1;
  command_of(channel).gate.window_segments = 2;
  channel->slots[0].issued = 1;
  channel->slots[0].predicted_end_ns = UINT64_MAX;
  CHECK(channel->gate.admit(0).reason == WaitReason::kWindow);
}

TEST(the_window_opens_when_the_gpu_moves_on) {
  Channel* channel = make_channel();
  channel->gate.slot_end = 1;
  command_of(channel).gate.window_segments = 1;
  channel->slots[0].issued = 1;
  std::thread waiter([&] { channel->gate.admit(kNoSlot); });
  until_waiting(channel, WaitReason::kWindow);
  channel->slots[0].done.store(1, std::memory_order_release);
  waiter.join();
}

TEST(a_gpu_that_stands_still_does_not_hold_a_thread_for_ever) {
  Channel* channel = make_channel();
  channel->gate.slot_end = 1;
  command_of(channel).gate.window_segments = 2;
  channel->slots[0].issued = 2;
  CHECK(channel->gate.admit(kNoSlot).reason == WaitReason::kWindow);
  channel->slots[0].issued = 3;
  CHECK(channel->gate.obstacle(kNoSlot) == WaitReason::kWindow);  // one more, not unlimited
  CHECK(channel->gate.admit(kNoSlot).reason == WaitReason::kWindow);
  channel->slots[0].issued = 4;  // and twice as many after that
  CHECK(channel->gate.obstacle(kNoSlot) == WaitReason::kWindow);
  channel->slots[0].done = 1;
  CHECK(channel->gate.obstacle(kNoSlot) == WaitReason::kWindow);  // it moves: the window is 2 again
  channel->slots[0].done = 3;
  CHECK(channel->gate.obstacle(kNoSlot) == WaitReason::kNone);
}

TEST(garbage_in_the_command_page_is_survived) {
  Channel* channel = make_channel();
  std::memset(static_cast<void*>(&command_of(channel)), 0xff, sizeof(shm::CommandPage));
  channel->gate.admit(kNoSlot);
  CHECK(channel->gate.obstacle(kNoSlot) == WaitReason::kNone);  // kFlagReleased is one of the bits
  command_of(channel).gate.flags = 0;
  channel->gate.admit(kNoSlot);  // held by a daemon whose tick is garbage
  CHECK(channel->gate.stale());
}
