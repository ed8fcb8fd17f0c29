#include "timing.h"

#include "check.h"
#include "durations.h"
#include "markers.h"
#include "observe.h"
#include "pages.h"
#include "slots.h"
#include "submit.h"

using namespace pages;

namespace {

long g_context = 0x1000;  // the streams' context

// Makes sure that no earlier test has used the pairs of events.
void begin() {
  make_driver();
  forget_all_timings();
  g_context = 0x1000;
  g_driver.cuStreamGetCtx = [](CUstream, CUcontext* context) {
    return *context = reinterpret_cast<CUcontext>(g_context), CUDA_SUCCESS;
  };
}

constexpr uint64_t kFunctions = 34;  // more than a context has pairs

Duration* duration_of(uint64_t function) {
  return g_durations.find(DurationTable::key_of(function, 4));
}

void launch(Channel* channel, uint64_t function, uint64_t stream = 5) {
  Submission submission;
  submission.stream = stream;
  submission.object = function;
  submission.blocks = 4;
  submission.measured = true;
  finish(prepare(*channel, submission), submission, true);
}

void run_iteration(Channel* channel) {
  for (uint64_t function = 1; function <= kFunctions; ++function) launch(channel, function);
}

uint64_t unmeasured() {
  uint64_t count = 0;
  for (uint64_t function = 1; function <= kFunctions; ++function)
    count += duration_of(function)->samples == 0 ? 1 : 0;
  return count;
}

}  // namespace

TEST(what_no_pair_was_free_for_is_measured_when_one_is) {
  begin();
  Channel* channel = make_channel();
  g_seen.gpu_held = true;
  for (int i = 0; i < 3; ++i) run_iteration(channel);
  CHECK(collect_timings());
  CHECK_EQ(unmeasured(), kFunctions);

  g_seen.gpu_held = false;
  CHECK(!collect_timings());
  CHECK(unmeasured() != 0);
  for (int i = 0; i < 3; ++i) {
    run_iteration(channel);
    collect_timings();
  }

  CHECK_EQ(unmeasured(), 0u);
}

// A driver requires a context for this, and the helper has none of its own.
TEST(the_helper_reads_times_and_markers_in_the_context_of_their_events) {
  begin();
  static CUcontext now, asked;
  now = asked = nullptr;
  g_driver.cuStreamWriteValue64_v2 = nullptr;  // markers by events
  g_driver.cuCtxSetCurrent = [](CUcontext context) { return now = context, CUDA_SUCCESS; };
  g_driver.cuEventElapsedTime = [](float* ms, CUevent, CUevent) {
    return *ms = 0.02f, asked = now, CUDA_SUCCESS;
  };
  Channel* channel = make_channel();
  launch(channel, kFunctions + 1);  // no other test has measured it

  collect_timings();
  CHECK_EQ(asked, reinterpret_cast<CUcontext>(g_context));

  now = nullptr;
  poll_events(*channel, 0);
  CHECK_EQ(now, reinterpret_cast<CUcontext>(g_context));
}

TEST(host_memory_is_registered_before_anything_runs_and_once) {
  begin();
  Channel* channel = make_channel();
  Submission submission;
  submission.stream = 5;

  prepare(*channel, submission);
  CHECK_EQ(g_seen.registrations.load(), 1);
  prepare(*channel, submission);
  CHECK_EQ(g_seen.registrations.load(), 1);
}

TEST(a_function_whose_samples_failed_is_sampled_again) {
  begin();
  Channel* channel = make_channel();
  g_driver.cuEventElapsedTime = [](float*, CUevent, CUevent) { return CUDA_ERROR_UNKNOWN; };
  for (uint32_t i = 0; i < kSamplesWanted; ++i) launch(channel, 0x100);
  collect_timings();

  begin();
  launch(channel, 0x100);  // too soon
  collect_timings();
  CHECK_EQ(duration_of(0x100)->samples.load(), 0u);
  for (uint32_t i = 0; i < kLaunchesPerTry; ++i) {
    launch(channel, 0x100);
    for (uint64_t other = 1; other < kLaunchesPerTry; ++other) launch(channel, 0x200);
  }
  collect_timings();

  CHECK_EQ(duration_of(0x100)->samples.load(), 1u);
}

TEST(a_turn_of_another_process_in_all_of_the_first_samples_is_not_what_a_function_takes) {
  static float ms;
  begin();
  g_driver.cuEventElapsedTime = [](float* out, CUevent, CUevent) {
    return *out = ms, CUDA_SUCCESS;
  };
  Channel* channel = make_channel();
  ms = 2.5;
  for (uint32_t i = 0; i < kSamplesWanted; ++i) launch(channel, 0x300);
  collect_timings();
  CHECK_EQ(duration_of(0x300)->ns.load(), 2'500'000u);

  ms = 0.5;
  for (uint32_t i = 0; i <= kLaunchesPerTry; ++i) launch(channel, 0x300);
  collect_timings();
  CHECK_EQ(duration_of(0x300)->ns.load(), 500'000u);

  ms = 2.5;
  for (uint32_t i = 0; i <= kLaunchesPerTry; ++i) launch(channel, 0x300);
  collect_timings();
  CHECK_EQ(duration_of(0x300)->ns.load(), 500'000u);
  CHECK_EQ(duration_of(0x300)->samples.load(), kSamplesSettled);
}

TEST(what_lets_a_primary_context_go_that_others_hold_leaves_everything_as_it_is) {
  begin();
  g_driver.cuDevicePrimaryCtxGetState = [](CUdevice, unsigned*, int* active) {
    return *active = 1, CUDA_SUCCESS;
  };
  Channel* channel = make_channel();
  g_channel = channel;
  g_seen.gpu_held = true;
  launch(channel, 0x700);
  const int made = g_seen.events;
  for (const bool may_destroy : {false, true}) {  // for all the shim knows; the driver knows better
    destroying_primary(0, may_destroy, [&] {
      CHECK_EQ(try_own(channel->streams[0]), !may_destroy);
      if (!may_destroy) disown(channel->streams[0]);
      return CUDA_SUCCESS;
    });
  }
  g_seen.gpu_held = false;
  CHECK(!collect_timings());
  for (uint32_t i = 1; i < kSamplesWanted; ++i) {
    launch(channel, 0x700);
    collect_timings();
  }

  CHECK_EQ(duration_of(0x700)->samples.load(), kSamplesWanted);
  CHECK_EQ(g_seen.events.load(), made);
  g_channel = nullptr;
}

TEST(the_timings_of_a_context_that_is_gone_are_not_read_and_make_room) {
  static int asked;
  for (const bool is_known : {true, false}) {
    const uint64_t function = is_known ? 0x800 : 0x900;
    begin();
    g_driver.cuDevicePrimaryCtxGetState = [](CUdevice, unsigned*, int* active) {
      return *active = 0, CUDA_SUCCESS;
    };
    Channel* channel = make_channel();
    g_channel = channel;
    g_seen.gpu_held = true;
    launch(channel, function);
    destroying_primary(0, is_known, [] { return CUDA_SUCCESS; });
    asked = 0;
    g_driver.cuEventQuery = [](CUevent) { return ++asked, CUDA_SUCCESS; };
    CHECK(!collect_timings());
    CHECK_EQ(asked, 0);

    const int made = g_seen.events;
    launch(channel, function);
    CHECK_EQ(g_seen.events.load(), made + 2);
    g_channel = nullptr;
  }
}

TEST(one_context_leaves_pairs_to_others) {
  begin();
  Channel* channel = make_channel();
  g_seen.gpu_held = true;
  for (uint64_t function = 1; function <= 2 * kFunctions; ++function)
    launch(channel, 0x400 + function);
  g_context = 0x2000;

  for (uint32_t i = 0; i < kSamplesWanted; ++i) launch(channel, 0x500, 6);
  g_seen.gpu_held = false;
  collect_timings();

  CHECK_EQ(duration_of(0x500)->samples.load(), kSamplesWanted);
}

TEST(events_that_the_driver_refuses_are_not_asked_for_at_every_launch) {
  static int asked = 0, alive = 0;
  begin();
  g_driver.cuEventCreate = [](CUevent* event, unsigned) {
    *event = reinterpret_cast<CUevent>(0x3000l);
    if (++asked % 2 == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    return ++alive, CUDA_SUCCESS;
  };
  g_driver.cuEventDestroy_v2 = [](CUevent) { return --alive, CUDA_SUCCESS; };
  Channel* channel = make_channel();
  for (int i = 0; i < 100; ++i) launch(channel, 0x600);
  CHECK(asked <= 2 * (3 + 100 / static_cast<int>(kLaunchesPerTry)));
  CHECK_EQ(alive, 0);
}
