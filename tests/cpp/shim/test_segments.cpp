#include "segments.h"

#include <thread>

#include "check.h"
#include "durations.h"
#include "helper.h"
#include "markers.h"
#include "observe.h"
#include "pages.h"
#include "slots.h"
#include "submit.h"

using namespace pages;

namespace {

Submission launch(uint64_t function, uint64_t stream = 5) {
  Submission submission;
  submission.stream = stream;
  submission.object = function;
  submission.blocks = 4;
  submission.measured = true;
  return submission;
}

void run(Channel* channel, const Submission& submission) {
  const Ticket ticket = prepare(*channel, submission);
  if (ticket.channel) finish(ticket, submission, true);
}

// Three launches of a function that was then measured to take `ns`.
void learn(Channel* channel, uint64_t function, uint64_t ns) {
  for (int i = 0; i < 3; ++i) run(channel, launch(function));
  Duration* duration = g_durations.find(DurationTable::key_of(function, 4));
  for (int i = 0; i < 3; ++i) DurationTable::measured(*duration, ns, duration->age);
}

}  // namespace

TEST(an_unknown_function_is_a_segment_by_itself_three_times) {
  make_driver();
  Channel* channel = make_channel();
  for (int i = 0; i < 3; ++i) run(channel, launch(0x100));
  CHECK_EQ(g_seen.markers.load(), 3);
  CHECK_EQ(channel->slots[0].issued.load(), 3u);
  CHECK_EQ(channel->slots[0].done.load(), 3u);
  CHECK(all_idle(*channel));
}

TEST(known_work_is_closed_when_it_adds_up_to_a_segment) {
  make_driver();
  Channel* channel = make_channel();
  learn(channel, 0x200, 40'000);
  const int before = g_seen.markers;
  for (int i = 0; i < 2; ++i) run(channel, launch(0x200));
  CHECK_EQ(g_seen.markers.load(), before);
  CHECK_EQ(channel->slots[0].open.load(), 2u);
  CHECK_EQ(channel->slots[0].open_est_ns.load(), 80'000u);
  CHECK(!all_idle(*channel));
  run(channel, launch(0x200));  // 120 us: more than the 100 us of a segment
  CHECK_EQ(g_seen.markers.load(), before + 1);
  CHECK_EQ(channel->slots[0].open.load(), 0u);
}

TEST(a_caller_that_blocks_finds_its_work_marked) {
  make_driver();
  Channel* channel = make_channel();
  learn(channel, 0x300, 1'000);
  run(channel, launch(0x300));
  CHECK_EQ(channel->slots[0].open.load(), 1u);
  before_block(*channel);
  CHECK_EQ(channel->slots[0].open.load(), 0u);
  CHECK(all_idle(*channel));
}

TEST(without_registered_memory_events_carry_the_markers) {
  make_driver();
  g_seen.refuse_register = 1;
  Channel* channel = make_channel();
  g_seen.gpu_held = true;
  run(channel, launch(0x400));
  CHECK_EQ(g_seen.markers.load(), 0);
  CHECK_EQ(channel->slots[0].issued.load(), 1u);
  CHECK(try_own(channel->streams[0]));
  CHECK(poll_events(*channel, 0));
  CHECK_EQ(channel->slots[0].done.load(), 0u);
  g_seen.gpu_held = false;
  CHECK(!poll_events(*channel, 0));
  CHECK_EQ(channel->slots[0].done.load(), 1u);
  disown(channel->streams[0]);
}

TEST(four_outstanding_events_leave_the_rest_open_for_later) {
  make_driver();
  g_seen.refuse_register = 1;
  g_seen.gpu_held = true;
  Channel* channel = make_channel();
  for (int i = 0; i < 6; ++i) {
    run(channel, launch(0x500 + static_cast<uint64_t>(i)));  // unknown: a segment each
  }
  CHECK_EQ(channel->slots[0].issued.load(), 4u);
  CHECK_EQ(channel->slots[0].open.load(), 2u);
}

TEST(each_stream_has_a_slot_and_a_destroyed_one_gives_it_back) {
  make_driver();
  Channel* channel = make_channel();
  g_channel = channel;
  run(channel, launch(0x600, 10));
  run(channel, launch(0x600, 11));
  CHECK_EQ(slot_end(*channel), 2u);
  retire_stream(as_stream(10));
  CHECK_EQ(channel->slots[0].state.load(), static_cast<uint32_t>(shm::SlotState::kRetired));
  run(channel, launch(0x600, 12));
  CHECK_EQ(slot_end(*channel), 2u);
  CHECK_EQ(channel->slots[0].stream.load(), 12u);
  g_channel = nullptr;
}

TEST(an_unfinished_streams_slot_is_not_reused) {
  make_driver();
  Channel* channel = make_channel();
  g_channel = channel;
  g_seen.gpu_held = true;
  run(channel, launch(0x700, 10));
  retire_stream(as_stream(10));
  run(channel, launch(0x700, 11));
  CHECK_EQ(slot_end(*channel), 2u);
  g_channel = nullptr;
}

TEST(more_streams_than_slots_are_passed_on_uncounted) {
  make_driver();
  Channel* channel = make_channel();
  for (uint64_t stream = 10; stream < 10 + shm::kSlotCount + 5; ++stream)
    run(channel, launch(0x800, stream));
  CHECK_EQ(slot_end(*channel), shm::kSlotCount);
}

TEST(a_destroyed_context_takes_its_slots_and_what_was_open_in_them) {
  make_driver();
  Channel* channel = make_channel();
  g_channel = channel;
  g_seen.gpu_held = true;
  run(channel, launch(0x900, kLegacyStream));
  CHECK(!all_idle(*channel));
  destroying_context(reinterpret_cast<CUcontext>(0x1000l), [] { return CUDA_SUCCESS; });
  CHECK(all_idle(*channel));
  CHECK_EQ(channel->registered.load(), 0u);  // the registration went with it
  run(channel, launch(0x900, kLegacyStream));
  CHECK_EQ(g_seen.registrations.load(), 2);
  g_channel = nullptr;
}

TEST(a_failed_launch_is_not_counted) {
  make_driver();
  Channel* channel = make_channel();
  const Submission submission = launch(0xa00);
  const Ticket ticket = prepare(*channel, submission);
  finish(ticket, submission, false);
  CHECK_EQ(channel->slots[0].issued.load() + channel->slots[0].open.load(), 0u);
}

TEST(threads_on_one_stream_leave_it_idle_in_the_end) {
  make_driver();
  Channel* channel = make_channel();
  learn(channel, 0xb00, 10'000);
  std::thread threads[4];
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      for (int i = 0; i < 500; ++i) run(channel, launch(0xb00));
    });
  }
  for (std::thread& thread : threads) thread.join();
  close_open_segments(*channel);
  CHECK(all_idle(*channel));
}

TEST(the_first_work_after_a_pause_rings_for_a_daemon_that_looks_rarely) {
  make_driver();
  Channel* channel = make_channel();
  g_channel = channel;
  g_helper_sleeps = true;
  run(channel, launch(0xc00));
  CHECK_EQ(channel->state->control.doorbell.load(), 1u);
  run(channel, launch(0xc00));  // the helper is awake
  CHECK_EQ(channel->state->control.doorbell.load(), 1u);
  g_channel = nullptr;
}
