#include "segments.h"

#include <thread>

#include "check.h"
#include "durations.h"
#include "ends.h"
#include "helper.h"
#include "inside.h"
#include "markers.h"
#include "observe.h"
#include "pages.h"
#include "slots.h"
#include "submit.h"
#include "timing.h"

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

// Launches a function three times, and records that it takes `ns`.
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
  run(channel, launch(0x200));  // 120 us: more than a segment's 100 us
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

namespace {

Submission memset_in(uint64_t stream) {
  Submission submission;
  submission.kind = shm::RecordKind::kMemset;
  submission.stream = stream;
  submission.bytes = 4;
  return submission;
}

// Calls `meanwhile` while the thread is in the driver with the submission.
template <class Meanwhile>
void add(const Submission& submission, Meanwhile meanwhile) {
  submit(submission, [&] { return meanwhile(), CUDA_SUCCESS; });
}
template <class Meanwhile>
void add_to(uint64_t stream, Meanwhile meanwhile) {
  add(memset_in(stream), meanwhile);
}
void add_to(uint64_t stream) {
  add_to(stream, [] {});
}
void on_another_thread(void (*act)()) { std::thread(act).join(); }

}  // namespace

TEST(who_asks_marks_what_it_submitted_itself_and_who_waits_all_there_is) {
  make_driver();
  Channel* channel = g_channel = make_channel();
  add_to(5);
  on_another_thread([] { add_to(6); });
  before_query(*channel);
  CHECK_EQ(channel->slots[0].open.load(), 0u);
  CHECK_EQ(channel->slots[1].open.load(), 1u);
  before_block(*channel);
  CHECK_EQ(channel->slots[1].open.load(), 0u);
  g_channel = nullptr;
}

TEST(nobody_marks_what_is_in_a_context_while_another_thread_is_in_the_driver_with_it) {
  make_driver();
  Channel* channel = g_channel = make_channel();
  add_to(5);
  g_seen.gpu_held = true;
  add_to(6, [] {
    on_another_thread([] {
      before_query(*g_channel);
      before_block(*g_channel);
      retire_stream(as_stream(5));
      CHECK_EQ(g_channel.load()->slots[0].open.load(), 1u);
    });
  });
  before_block(*channel);
  CHECK_EQ(channel->slots[1].open.load(), 0u);
  g_channel = nullptr;
}

TEST(what_is_in_another_context_is_marked_meanwhile) {
  make_driver();
  g_channel = make_channel();
  add_to(5);
  g_channel.load()->streams[0].green = true;  // any thread may mark what is in a green context
  g_channel.load()->streams[0].context = 0x9000;
  add_to(6, [] {
    on_another_thread([] {
      before_block(*g_channel);
      CHECK_EQ(g_channel.load()->slots[0].open.load(), 0u);
    });
  });
  g_channel = nullptr;
}

TEST(a_thread_is_kept_whose_call_takes_long) {
  make_driver();
  g_channel = make_channel();
  const auto another_finds_one = [](uint64_t context) {
    bool found = false;
    std::thread([&] { found = is_anyone_kept(*g_channel, context); }).join();
    return found;
  };
  add_to(5, [&] {
    CHECK(is_anyone_inside(g_channel.load()->streams[0]));
    CHECK(!is_anyone_kept(*g_channel, 0x1000));  // the kept thread is this one
    CHECK(another_finds_one(0x1000));
    CHECK(!another_finds_one(0x9000));
  });
  CHECK(!is_anyone_inside(g_channel.load()->streams[0]));
  CHECK(!another_finds_one(0x1000));

  std::atomic<bool> over{false};
  std::thread busy([&] {
    while (!over) add_to(5);
  });
  CHECK(!another_finds_one(0x9000));
  over = true;
  busy.join();
  g_channel = nullptr;
}

// This holds for calls that are no submissions, too. If a submission is already inside, it stays
// so.
TEST(who_adds_to_a_stream_by_its_handle_is_inside) {
  make_driver();
  g_channel = make_channel();
  add_to(5);
  const StreamSlot& slot = g_channel.load()->streams[0];
  {
    const Inside inside(as_stream(5), false);
    CHECK(is_anyone_inside(slot));
    {
      const Inside again(as_stream(5), false);
    }
    CHECK(is_anyone_inside(slot));
  }
  CHECK(!is_anyone_inside(slot));
  {
    const Inside of_none(as_stream(77), false);
  }
  g_channel = nullptr;
}

TEST(where_a_thread_is_kept_the_end_of_what_is_open_is_asked_for) {
  make_driver();
  g_channel = make_channel();
  add_to(5);
  add_to(6, [] {
    on_another_thread([] {
      Channel& channel = *g_channel;
      const int before = g_seen.markers;
      g_seen.gpu_held = true;
      close_or_settle_owned(channel, 0);
      CHECK_EQ(channel.slots[0].open.load(), 1u);
      g_seen.gpu_held = false;
      close_or_settle_owned(channel, 0);
      CHECK_EQ(channel.slots[0].open.load(), 0u);
      CHECK_EQ(g_seen.markers.load(), before);
    });
  });
  g_channel = nullptr;
}

namespace {

struct BeginNoCapture {
  static constexpr bool kPerThread = false;
  static CUresult real(CUstream, CUstreamCaptureMode) { return CUDA_ERROR_UNKNOWN; }
};

}  // namespace

TEST(a_capture_is_begun_without_a_marker_where_a_thread_is_kept) {
  make_driver();
  g_channel = make_channel();
  add_to(5);
  g_seen.gpu_held = true;
  add_to(6, [] {
    on_another_thread([] {
      const int before = g_seen.markers;
      handlers::begin_capture<BeginNoCapture>(as_stream(5), CU_STREAM_CAPTURE_MODE_GLOBAL);
      CHECK_EQ(g_seen.markers.load(), before);
    });
  });
  g_channel = nullptr;
}

TEST(what_is_asked_about_in_a_green_context_is_asked_in_its_primary_one) {
  static CUcontext now_current;
  make_driver();
  g_seen.refuse_register = 1;
  g_driver.cuStreamGetCtx = [](CUstream, CUcontext* context) {
    return *context = reinterpret_cast<CUcontext>(0x7700l), CUDA_SUCCESS;  // its view of itself
  };
  g_driver.cuStreamGetCtx_v2 = [](CUstream, CUcontext* context, CUgreenCtx* green) {
    *green = reinterpret_cast<CUgreenCtx>(0x77l);
    return current(context);
  };
  g_driver.cuCtxSetCurrent = [](CUcontext context) { return now_current = context, CUDA_SUCCESS; };
  Channel* channel = g_channel = make_channel();
  run(channel, launch(0x490));
  poll_events(*channel, 0);
  CHECK_EQ(reinterpret_cast<uint64_t>(now_current), 0x1000u);
  now_current = nullptr;
  while (collect_timings()) {
  }
  CHECK_EQ(reinterpret_cast<uint64_t>(now_current), 0x1000u);
  g_channel = nullptr;
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

TEST(streams_that_follow_each_other_in_a_slot_share_its_events) {
  static long its_context;
  its_context = 0x1000;
  make_driver();
  g_seen.refuse_register = 1;
  g_driver.cuEventElapsedTime = nullptr;  // so the only events are markers
  g_driver.cuCtxGetCurrent = [](CUcontext* context) {
    return *context = reinterpret_cast<CUcontext>(its_context), CUDA_SUCCESS;
  };
  g_driver.cuStreamGetCtx = [](CUstream, CUcontext* context) {
    return g_driver.cuCtxGetCurrent(context);
  };
  Channel* channel = make_channel();
  g_channel = channel;
  const auto live = [&](uint64_t stream) {
    run(channel, launch(0x480, stream));
    CHECK(poll_events(*channel, 0) == false);
    retire_stream(as_stream(stream));
  };

  live(10);
  const int made = g_seen.events;
  live(11);
  CHECK_EQ(g_seen.events.load(), made);

  its_context = 0x2000;
  live(12);
  CHECK_EQ(g_seen.events.load(), 2 * made);
  CHECK_EQ(g_seen.destroyed_events.load(), made);
  g_channel = nullptr;
}

TEST(four_outstanding_events_leave_the_rest_open_for_later) {
  make_driver();
  g_seen.refuse_register = 1;
  g_seen.gpu_held = true;
  Channel* channel = make_channel();
  for (int i = 0; i < 6; ++i) {
    run(channel, launch(0x500 + static_cast<uint64_t>(i)));  // unknown: one segment each
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
  CHECK(channel->has_unslotted);
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
  CHECK_EQ(channel->registered.load(), 0u);  // the registration went with the context
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

namespace {

// Leaves one launch of a known function open in the legacy stream, which has slot 0.
Channel* make_channel_with_open_legacy_work() {
  Channel* channel = make_channel();
  run(channel, launch(0xd00, kLegacyStream));
  before_block(*channel);
  learn(channel, 0xd00, 1'000);
  before_block(*channel);
  run(channel, launch(0xd00, kLegacyStream));
  return channel;
}

}  // namespace

TEST(no_marker_goes_into_the_legacy_stream_while_a_blocking_stream_that_went_on_is_at_work) {
  make_driver();
  Channel* channel = make_channel_with_open_legacy_work();
  g_seen.gpu_held = true;
  run(channel, launch(0xd00, 5));
  const int before = g_seen.markers;
  before_block(*channel);
  CHECK_EQ(g_seen.markers.load(), before + 1);  // for stream 5
  CHECK_EQ(channel->slots[0].open.load(), 1u);
  run(channel, launch(0xd00, kLegacyStream));  // waits for stream 5 itself
  before_block(*channel);
  CHECK_EQ(channel->slots[0].open.load(), 0u);
}

TEST(nor_after_a_blocking_stream_may_have_begun_to_wait_until_the_driver_says_that_all_has_ended) {
  make_driver();
  Channel* channel = make_channel_with_open_legacy_work();
  record_order(*channel, shm::RecordKind::kEventRecord, 5, 1);
  CHECK(!others_went_on(*channel, 0));
  record_order(*channel, shm::RecordKind::kEventWait, 5, 1);
  const int before = g_seen.markers;
  before_block(*channel);
  CHECK_EQ(g_seen.markers.load(), before);
  g_seen.gpu_held = true;
  settle_owned(*channel, 0);
  CHECK_EQ(channel->slots[0].open.load(), 1u);
  g_seen.gpu_held = false;
  settle_owned(*channel, 0);
  CHECK(all_idle(*channel));
}

TEST(streams_that_do_not_block_or_are_of_another_context_hold_back_no_marker) {
  make_driver();
  Channel* channel = make_channel_with_open_legacy_work();
  g_seen.gpu_held = true;
  run(channel, launch(0xd00, 5));
  CHECK(others_went_on(*channel, 0));
  channel->streams[1].blocking = false;
  CHECK(!others_went_on(*channel, 0));
  channel->streams[1].blocking = true;
  channel->streams[1].context = 0x9000;
  CHECK(!others_went_on(*channel, 0));
}

TEST(work_of_another_context_is_left_to_the_helper) {
  make_driver();
  Channel* channel = make_channel_with_open_legacy_work();
  static uint64_t now_current;
  now_current = 0x9000;
  g_driver.cuCtxGetCurrent = [](CUcontext* context) {
    return *context = reinterpret_cast<CUcontext>(now_current), CUDA_SUCCESS;
  };
  const int before = g_seen.markers;
  before_block(*channel);
  CHECK_EQ(g_seen.markers.load(), before);  // it would go into this context's legacy stream
  now_current = 0x1000;                     // as the helper makes it current
  close_segment(*channel, 0);
  CHECK_EQ(g_seen.markers.load(), before + 1);
}

TEST(with_more_streams_than_slots_the_legacy_stream_gets_no_marker) {
  make_driver();
  Channel* channel = make_channel_with_open_legacy_work();
  channel->has_unslotted = true;
  before_block(*channel);
  CHECK_EQ(channel->slots[0].open.load(), 1u);
  const uint64_t told = channel->state->marks.launches.load();
  settle_owned(*channel, 0);
  CHECK_EQ(channel->slots[0].open.load(), 0u);
  CHECK_EQ(channel->state->marks.launches.load(), told + 1);
}

TEST(what_ended_with_its_context_is_told_and_counted) {
  make_driver();
  Channel* channel = make_channel_with_open_legacy_work();
  const uint64_t told = channel->state->marks.launches.load();
  uint64_t open[shm::kSlotCount];
  snapshot_open(*channel, open);
  run(channel, launch(0xd00, kLegacyStream));  // after the wait for the context began
  settle_context(*channel, 0x1000, open);
  CHECK_EQ(channel->slots[0].open.load(), 1u);
  CHECK_EQ(channel->state->marks.launches.load(), told + 2);
}

namespace {

Channel* g_capturing;

// Another thread submits and the helper comes at the worst moment: the driver already captures, and
// nobody has recorded that.
struct BeginCapture {
  static constexpr bool kPerThread = false;
  static CUresult real(CUstream, CUstreamCaptureMode) {
    ++g_capturing->slots[0].open;
    close_segment(*g_capturing, 0);
    return CUDA_SUCCESS;
  }
};

}  // namespace

TEST(no_marker_goes_into_the_legacy_stream_while_a_capture_begins) {
  make_driver();
  g_channel = g_capturing = make_channel_with_open_legacy_work();
  const int before = g_seen.markers;
  handlers::begin_capture<BeginCapture>(as_stream(5), CU_STREAM_CAPTURE_MODE_GLOBAL);
  CHECK_EQ(g_seen.markers.load(), before + 1);  // for the earlier work
  close_segment(*g_capturing, 0);
  CHECK_EQ(g_seen.markers.load(), before + 1);
  note_capture_ended(5);
  close_segment(*g_capturing, 0);
  CHECK_EQ(g_seen.markers.load(), before + 2);
  g_channel = nullptr;
}

TEST(nothing_is_put_into_a_stream_that_the_program_is_destroying) {
  make_driver();
  Channel* channel = make_channel_with_open_legacy_work();
  run(channel, launch(0xd00, 5));
  StreamSlot& slot = channel->streams[1];
  CHECK(own_to_end(slot));
  disown(slot);
  const int before = g_seen.markers;
  close_segment(*channel, 1);
  CHECK_EQ(g_seen.markers.load(), before);
}

TEST(the_slot_of_a_stream_that_somebody_is_inside_the_driver_with_is_no_other_streams_yet) {
  make_driver();
  Channel* channel = make_channel();
  g_channel = channel;
  run(channel, launch(0xd00, 5));
  before_block(*channel);
  StreamSlot& slot = channel->streams[0];
  CHECK(try_own(slot));  // the helper, which does not return for a second
  retire_stream(as_stream(5));
  CHECK(!is_live(slot));
  run(channel, launch(0xd00, 6));
  CHECK_EQ(slot_end(*channel), 2u);
  disown(slot);
  run(channel, launch(0xd00, 7));
  CHECK_EQ(slot_end(*channel), 2u);
  CHECK_EQ(slot.stream.load(), 7u);
  g_channel = nullptr;
}

TEST(a_stream_that_the_driver_does_not_know_gets_no_marker_of_any_kind_any_more) {
  make_driver();
  Channel* channel = make_channel();
  g_driver.cuStreamWriteValue64_v2 = [](CUstream, CUdeviceptr, cuuint64_t, unsigned) {
    return CUDA_ERROR_INVALID_HANDLE;
  };
  run(channel, launch(0xd00, 5));
  before_block(*channel);
  CHECK_EQ(g_seen.event_records.load(), 0);
  CHECK_EQ(channel->slots[0].issued.load(), 0u);
  CHECK(!is_live(channel->streams[0]));
}

namespace {

long g_current_context;

// Stream 10 belongs to context 0x1000, which registers the pages, and stream 11 to context 0x2000,
// in which a marker waits.
Channel* make_channel_of_two_contexts() {
  make_driver();
  g_driver.cuCtxGetCurrent = [](CUcontext* context) {
    return *context = reinterpret_cast<CUcontext>(g_current_context), CUDA_SUCCESS;
  };
  g_driver.cuStreamGetCtx = [](CUstream, CUcontext* context) {
    return g_driver.cuCtxGetCurrent(context);
  };
  Channel* channel = make_channel();
  g_channel = channel;
  g_current_context = 0x1000;
  run(channel, launch(0xd00, 10));
  before_block(*channel);
  g_current_context = 0x2000;
  g_seen.gpu_held = true;
  run(channel, launch(0xd00, 11));
  before_block(*channel);
  return channel;
}

CUcontext registering_context() { return reinterpret_cast<CUcontext>(0x1000l); }

}  // namespace

TEST(markers_of_other_contexts_pass_before_the_one_goes_that_registered_their_pages) {
  Channel* channel = make_channel_of_two_contexts();
  shm::Slot& slot = channel->slots[1];
  CHECK(slot.done.load() < slot.issued.load());
  std::thread gpu([&] {
    while (channel->registered.load() != kSuspended) std::this_thread::yield();
    slot.done.store(slot.issued.load());
  });
  destroying_context(registering_context(), [&] {
    CHECK_EQ(slot.done.load(), slot.issued.load());
    return CUDA_SUCCESS;
  });
  gpu.join();
  CHECK_EQ(channel->registered.load(), kNotTried);
  g_seen.gpu_held = false;
  run(channel, launch(0xd00, 11));
  before_block(*channel);
  CHECK_EQ(g_seen.registrations.load(), 2);
  g_channel = nullptr;
}

TEST(what_is_not_destroyed_after_all_keeps_the_pages) {
  Channel* channel = make_channel_of_two_contexts();
  channel->slots[1].done.store(channel->slots[1].issued.load());
  destroying_context(registering_context(), [] { return CUDA_ERROR_INVALID_CONTEXT; });
  CHECK_EQ(channel->registered.load(), kRegistered);
  run(channel, launch(0xd00, 11));
  before_block(*channel);
  CHECK_EQ(g_seen.registrations.load(), 1);
  CHECK_EQ(g_seen.event_records.load(), 0);
  g_channel = nullptr;
}
