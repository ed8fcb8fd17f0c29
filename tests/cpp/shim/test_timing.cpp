#include "timing.h"

#include "check.h"
#include "durations.h"
#include "pages.h"
#include "submit.h"

using namespace pages;

namespace {

constexpr uint64_t kFunctions = 34;  // more than there are pairs

Duration* duration_of(uint64_t function) {
  return g_durations.find(DurationTable::key_of(function, 4));
}

void launch(Channel* channel, uint64_t function) {
  Submission submission;
  submission.stream = 5;
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
  make_driver();
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

TEST(a_function_whose_samples_failed_is_sampled_again) {
  make_driver();
  Channel* channel = make_channel();
  g_driver.cuEventElapsedTime = [](float*, CUevent, CUevent) { return CUDA_ERROR_UNKNOWN; };
  for (uint32_t i = 0; i < kSamplesWanted; ++i) launch(channel, 0x100);
  collect_timings();

  make_driver();
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
