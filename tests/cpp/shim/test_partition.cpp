#include "handlers.h"

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "bias.h"
#include "check.h"
#include "durations.h"
#include "inside.h"
#include "pages.h"
#include "sets.h"
#include "streams.h"
#include "through.h"

using namespace pages;

namespace {

constexpr unsigned kGroups = 16, kGroupSms = 8;

// A driver that models order: for each stream, after which launch of its handle its next work
// comes.
struct Model {
  std::mutex mutex;
  std::map<CUstream, CUstream> handle;     // of every existing stream
  std::map<CUstream, CUgreenCtx> context;  // for streams of green contexts
  std::map<CUgreenCtx, uint32_t> groups;   // first | count << 16, of live contexts
  std::map<CUstream, uint64_t> behind;     // its next work comes after so many launches
  std::map<CUevent, uint64_t> events;      // likewise
  std::map<CUstream, uint64_t> launches;   // so far, by handle
  std::set<CUstream> capturing;
  bool is_slow = false;  // then no work has ended
  uint64_t disordered = 0, homeless = 0, next = 0x10000, last_groups = 0;
  CUdevResourceDesc described = nullptr;
};
Model* g_model;

template <class T>
T fresh() {
  return reinterpret_cast<T>(g_model->next += 0x100);
}

CUresult launch(CUstream stream) {
  const std::lock_guard<std::mutex> held(g_model->mutex);
  const auto known = g_model->handle.find(stream);
  if (known == g_model->handle.end()) return ++g_model->homeless, CUDA_ERROR_INVALID_HANDLE;
  const auto context = g_model->context.find(stream);
  if (context != g_model->context.end() && !g_model->groups.count(context->second))
    ++g_model->homeless;
  uint64_t& count = g_model->launches[known->second];
  if (g_model->behind[stream] != count) ++g_model->disordered;
  g_model->behind[stream] = ++count;
  g_model->last_groups = context == g_model->context.end() ? 0 : g_model->groups[context->second];
  return CUDA_SUCCESS;
}

void make_model_driver() {
  make_driver();
  g_driver.cuStreamGetCtx = [](CUstream stream, CUcontext* context) {
    const std::lock_guard<std::mutex> held(g_model->mutex);
    return *context = reinterpret_cast<CUcontext>(0x1000l),
           g_model->handle.count(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  };
  g_driver.cuStreamGetCtx_v2 = [](CUstream, CUcontext* context, CUgreenCtx* green) {
    *context = reinterpret_cast<CUcontext>(0x1000l), *green = nullptr;
    return CUDA_SUCCESS;
  };
  g_driver.cuStreamGetFlags = [](CUstream, unsigned* flags) {
    return *flags = CU_STREAM_NON_BLOCKING, CUDA_SUCCESS;
  };
  static thread_local int contexts = 0;  // the helper has none current
  g_driver.cuCtxPushCurrent_v2 = [](CUcontext) { return ++contexts, CUDA_SUCCESS; };
  g_driver.cuCtxPopCurrent_v2 = [](CUcontext*) { return --contexts, CUDA_SUCCESS; };
  g_driver.cuDevicePrimaryCtxGetState = [](CUdevice, unsigned*, int* active) {
    return *active = 1, CUDA_SUCCESS;
  };
  g_driver.cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) {
    return *context = reinterpret_cast<CUcontext>(0x1000l), CUDA_SUCCESS;
  };
  g_driver.cuDevicePrimaryCtxRelease_v2 = [](CUdevice) { return CUDA_SUCCESS; };
  g_driver.cuDeviceGetDevResource = [](CUdevice, CUdevResource* all, CUdevResourceType) {
    return all->sm.smCount = kGroups * kGroupSms, CUDA_SUCCESS;
  };
  g_driver.cuDevSmResourceSplitByCount = [](CUdevResource* groups, unsigned* count,
                                            const CUdevResource*, CUdevResource*, unsigned,
                                            unsigned) {
    *count = kGroups;
    for (unsigned i = 0; groups && i < kGroups; ++i) groups[i].sm.smCount = kGroupSms;
    return CUDA_SUCCESS;
  };
  g_driver.cuDevResourceGenerateDesc = [](CUdevResourceDesc* out, CUdevResource*, unsigned count) {
    return *out = reinterpret_cast<CUdevResourceDesc>(uint64_t{count}), CUDA_SUCCESS;
  };
  g_driver.cuGreenCtxCreate = [](CUgreenCtx* out, CUdevResourceDesc count, CUdevice, unsigned) {
    const std::lock_guard<std::mutex> held(g_model->mutex);
    *out = fresh<CUgreenCtx>();
    g_model->groups[*out] = static_cast<uint32_t>(reinterpret_cast<uint64_t>(count));
    return CUDA_SUCCESS;
  };
  g_driver.cuGreenCtxDestroy = [](CUgreenCtx green) {
    const std::lock_guard<std::mutex> held(g_model->mutex);
    return g_model->groups.erase(green) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  };
  static thread_local CUstream whose;
  g_driver.cuStreamGetPriority = [](CUstream stream, int* priority) {
    whose = stream;  // the next stream is created for it
    return *priority = 0, CUDA_SUCCESS;
  };
  g_driver.cuGreenCtxStreamCreate = [](CUstream* out, CUgreenCtx green, unsigned, int) {
    const std::lock_guard<std::mutex> held(g_model->mutex);
    *out = fresh<CUstream>();
    g_model->handle[*out] = whose;
    g_model->context[*out] = green;
    return CUDA_SUCCESS;
  };
  g_driver.cuStreamCopyAttributes = [](CUstream, CUstream) { return CUDA_SUCCESS; };
  g_driver.cuStreamDestroy_v2 = [](CUstream stream) {
    const std::lock_guard<std::mutex> held(g_model->mutex);
    g_model->context.erase(stream);
    return g_model->handle.erase(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  };
  g_driver.cuEventQuery = [](CUevent) {
    const std::lock_guard<std::mutex> held(g_model->mutex);
    return g_model->is_slow ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
  };
  g_driver.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
  g_driver.cuEventRecord = [](CUevent event, CUstream stream) {
    const std::lock_guard<std::mutex> held(g_model->mutex);
    return g_model->events[event] = g_model->behind[stream], CUDA_SUCCESS;
  };
  g_driver.cuStreamWaitEvent = [](CUstream stream, CUevent event, unsigned) {
    const std::lock_guard<std::mutex> held(g_model->mutex);
    uint64_t& behind = g_model->behind[stream];
    return behind = std::max(behind, g_model->events[event]), CUDA_SUCCESS;
  };
  g_driver.cuStreamIsCapturing = [](CUstream stream, CUstreamCaptureStatus* status) {
    if (contexts == 0) return CUDA_ERROR_INVALID_CONTEXT;
    const std::lock_guard<std::mutex> held(g_model->mutex);
    *status = g_model->capturing.count(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                               : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  };
}

// A process that was given a set when it attached.
struct Process {
  explicit Process(shm::SmSet set) {
    static std::vector<std::unique_ptr<Model>> models;  // never freed, like the pages
    g_model = models.emplace_back(std::make_unique<Model>()).get();
    partition::start_afresh();
    make_model_driver();
    channel = make_channel();
    partition::attach_on(0);
    tell(set);
    partition::obey(channel->command->memory, true);
  }
  void tell(shm::SmSet set) {
    shm::CommandMemory& memory = command_of(channel).memory;
    memory.sm_set = shm::word_of(set);
    ++memory.set_turn;
  }
  CUstream stream() {
    const std::lock_guard<std::mutex> held(g_model->mutex);
    const auto handle = fresh<CUstream>();
    return g_model->handle[handle] = handle;
  }
  Channel* channel;
};

shm::SmSet groups(uint32_t first, uint32_t count) { return {first, count, kGroupSms}; }

CUresult submit(CUstream handle) {
  return partition::hand_over<partition::How::kFollow, false>(&launch, handle);
}

}  // namespace

TEST(a_stream_follows_its_set_between_two_submissions_and_keeps_its_order) {
  Process process(groups(0, 4));
  const CUstream stream = process.stream();
  submit(stream);
  CHECK_EQ(g_model->last_groups, 4u);
  process.tell(groups(8, 2));
  submit(stream);
  CHECK_EQ(g_model->last_groups, 2u);
  process.tell(groups(0, 0));  // the whole device
  submit(stream);
  CHECK_EQ(g_model->last_groups, 0u);
  CHECK_EQ(g_model->disordered, 0u);
}

TEST(told_where_it_was_once_more_it_is_there_when_it_has_left_where_it_was_meanwhile) {
  Process process(groups(0, 4));
  const CUstream stream = process.stream();
  const std::atomic<uint32_t>& in_turn = process.channel->state->sets.in_turn;
  submit(stream);
  partition::look_after(*process.channel);
  CHECK_EQ(in_turn.load(), 1u);
  process.tell(groups(8, 2));
  submit(stream);
  process.tell(groups(0, 4));
  g_model->is_slow = true;

  partition::look_after(*process.channel);
  CHECK_EQ(in_turn.load(), 1u);

  g_model->is_slow = false;
  partition::look_after(*process.channel);
  CHECK_EQ(in_turn.load(), 3u);
}

TEST(the_helper_sends_no_stream_elsewhere_while_a_thread_is_kept_in_the_driver_with_its_context) {
  Process process(groups(0, 4));
  const CUstream stream = process.stream();
  submit(stream);
  process.tell(groups(8, 2));
  const std::atomic<uint32_t>& in_turn = process.channel->state->sets.in_turn;
  process.channel->streams[0].context = 0x1000;
  process.channel->gate.slot_end = 1;
  {
    const Inside inside(process.channel, 0);
    std::thread([&] { partition::look_after(*process.channel); }).join();
    CHECK_EQ(in_turn.load(), 0u);
  }
  partition::look_after(*process.channel);
  CHECK_EQ(in_turn.load(), 2u);
}

TEST(told_where_it_was_once_more_before_it_went_it_is_there) {
  Process process(groups(0, 4));
  submit(process.stream());
  partition::look_after(*process.channel);
  process.tell(groups(8, 2));
  process.tell(groups(0, 4));
  partition::look_after(*process.channel);
  CHECK_EQ(process.channel->state->sets.in_turn.load(), 3u);
  CHECK_EQ(process.channel->state->sets.in.load(), shm::word_of(groups(0, 4)));
}

TEST(no_set_is_dropped_that_a_stream_on_its_way_may_have_work_in) {
  Process process(groups(0, 1));
  const CUstream stream = process.stream();
  g_model->is_slow = true;
  for (uint32_t first = 0; first < partition::kSets; ++first) {
    process.tell(groups(first, 1));
    submit(stream);
  }
  process.tell(groups(0, 7));
  submit(stream);
  CHECK_EQ(g_model->groups.size(), size_t{partition::kSets});
  CHECK_EQ(g_model->last_groups, 1u);  // the stream stays where it is

  g_model->is_slow = false;
  submit(stream);
  CHECK_EQ(g_model->last_groups, 7u);
  CHECK_EQ(g_model->groups.size(), size_t{partition::kSets});
  CHECK_EQ(g_model->disordered, 0u);
}

TEST(what_the_driver_refuses_is_not_tried_again_though_there_is_no_room_for_another_set) {
  Process process(groups(0, 1));
  const CUstream stream = process.stream();
  for (uint32_t first = 0; first < partition::kSets; ++first) {
    process.tell(groups(first, 1));
    submit(stream);
    partition::look_after(*process.channel);
  }
  static int tries = 0;
  g_driver.cuGreenCtxStreamCreate = [](CUstream*, CUgreenCtx, unsigned, int) {
    ++tries;
    return CUDA_ERROR_OUT_OF_MEMORY;
  };
  process.tell(groups(0, 7));

  submit(stream);
  submit(stream);

  CHECK_EQ(tries, 1);
}

TEST(who_goes_to_a_set_that_is_there_has_none_dropped) {
  Process process(groups(0, 1));
  const CUstream stream = process.stream(), other = process.stream();
  for (uint32_t first = 0; first < partition::kSets; ++first) {
    process.tell(groups(first, 1));
    submit(stream);
    partition::look_after(*process.channel);
  }
  submit(other);
  CHECK_EQ(g_model->groups.size(), size_t{partition::kSets});
}

TEST(times_are_stale_from_when_a_stream_is_on_another_number_of_sms) {
  Process process(groups(0, 4));
  const CUstream stream = process.stream();
  submit(stream);
  Duration* duration = g_durations.find(DurationTable::key_of(0x9, 4));
  const auto is_stale_on = [&](shm::SmSet set) {
    DurationTable::measured(*duration, 9'000, duration->age);
    process.tell(set);
    submit(stream);
    return duration->is_stale();
  };
  CHECK(!is_stale_on(groups(8, 4)));
  CHECK(is_stale_on(groups(8, 5)));
  CHECK(!is_stale_on(groups(8, 5)));
  CHECK(is_stale_on(groups(0, 0)));  // the whole device
}

TEST(a_new_stream_makes_times_stale_only_where_the_others_are_not) {
  Process process(groups(0, 4));
  submit(process.stream());
  Duration* duration = g_durations.find(DurationTable::key_of(0x9, 4));
  DurationTable::measured(*duration, 9'000, duration->age);
  submit(process.stream());
  CHECK(!duration->is_stale());
  process.tell(groups(8, 2));
  submit(process.stream());
  CHECK(duration->is_stale());
}

TEST(without_a_set_at_first_nothing_is_behind_a_handle) {
  Process process({0, 0, 0});
  const CUstream stream = process.stream();
  process.tell(groups(0, 4));
  CHECK_EQ(submit(stream), CUDA_SUCCESS);
  CHECK(g_model->context.empty());
}

TEST(a_cooperative_grid_that_does_not_fit_into_its_set_is_launched_on_the_whole_device) {
  Process process(groups(0, 4));
  const CUstream stream = process.stream();
  submit(stream);
  g_driver.cuLaunchCooperativeKernel = [](CUfunction, unsigned, unsigned, unsigned, unsigned,
                                          unsigned, unsigned, unsigned, CUstream on, void**) {
    launch(on);
    return g_model->last_groups ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
  };
  const auto launch_all = [&] {
    return handlers::launch_kernel<cuLaunchCooperativeKernel_call>(nullptr, 99, 1, 1, 1, 1, 1, 0,
                                                                   stream, nullptr);
  };

  CHECK_EQ(launch_all(), CUDA_SUCCESS);
  CHECK_EQ(launch_all(), CUDA_SUCCESS);

  CHECK_EQ(g_model->launches[stream], 4u);  // the second launch went home at once
  CHECK_EQ(g_model->disordered, 0u);
}

TEST(a_release_destroys_no_set_in_which_work_goes_on_and_a_reset_does) {
  Process process(groups(0, 4));
  submit(process.stream());
  g_model->is_slow = true;
  partition::before_release(0, true, false);
  CHECK_EQ(g_model->groups.size(), 1u);
  partition::before_release(0, true, true);
  CHECK(g_model->groups.empty());
  CHECK_EQ(g_model->homeless, 0u);
}

TEST(the_last_release_destroys_the_sets_that_are_left) {
  Process process(groups(0, 4));
  submit(process.stream());
  partition::before_release(0, true, false);
  CHECK(g_model->groups.empty());
}

TEST(a_stream_is_home_from_before_it_captures_and_goes_again_once_it_does_no_more) {
  Process process(groups(0, 4));
  const CUstream stream = process.stream();
  submit(stream);
  {
    const partition::AtHome at_home(stream);
    process.tell(groups(8, 2));
    partition::look_after(*process.channel);
    submit(stream);  // the call that begins the capture
    CHECK_EQ(g_model->last_groups, 0u);
    g_model->capturing.insert(stream);
  }
  for (int i = 0; i < 3; ++i) {
    submit(stream);
    CHECK_EQ(g_model->last_groups, 0u);
    partition::look_after(*process.channel);
    CHECK_EQ(process.channel->state->sets.staying[4].load(), 1u);
  }

  g_model->capturing.erase(stream);
  submit(stream);

  CHECK_EQ(g_model->last_groups, 2u);
  CHECK_EQ(g_model->disordered, 0u);
  partition::look_after(*process.channel);
  CHECK_EQ(process.channel->state->sets.staying[4].load(), 0u);
}

TEST(a_stream_whose_capture_has_ended_goes_again_also_where_nothing_is_submitted) {
  Process process(groups(0, 4));
  const CUstream stream = process.stream();
  submit(stream);
  g_model->capturing.insert(stream);
  {
    const partition::AtHome at_home(stream);
  }
  partition::look_after(*process.channel);
  CHECK(partition::Stream(stream, partition::How::kLook).real() == stream);

  g_model->capturing.erase(stream);
  partition::look_after(*process.channel);

  CHECK(partition::Stream(stream, partition::How::kLook).real() != stream);
}

TEST(graphs_are_told_of_from_the_first_one_on) {
  Process process(groups(0, 4));
  partition::look_after(*process.channel);
  CHECK_EQ(process.channel->state->sets.graphs.load(), 0u);
  partition::note_graph();
  partition::look_after(*process.channel);
  CHECK_EQ(process.channel->state->sets.graphs.load(), 1u);
}

// The driver may reuse the handle as soon as the stream is gone.
TEST(a_handle_that_is_given_out_anew_has_nothing_of_the_old_stream) {
  Process process(groups(0, 4));
  const CUstream stream = process.stream();
  submit(stream);
  {
    partition::Ending ending(stream);
    const partition::Stream other(stream, partition::How::kLook);
    CHECK(other.real() == stream);
    ending.end(true);
  }
  CHECK(g_model->context.empty());
}

// A driver's handle must not be used once it is destroyed.
TEST(the_helper_asks_nothing_about_streams_that_come_and_go) {
  static std::atomic<int> asked;
  static decltype(g_driver.cuStreamIsCapturing) ask;
  Process process(groups(0, 4));
  ask = g_driver.cuStreamIsCapturing;
  asked = 0;
  g_driver.cuStreamIsCapturing = [](CUstream stream, CUstreamCaptureStatus* status) {
    {
      const std::lock_guard<std::mutex> held(g_model->mutex);
      if (!g_model->handle.count(stream)) ++asked;
    }
    return ask(stream, status);
  };
  std::atomic<bool> over{false};
  std::thread helper([&] {
    while (!over) partition::look_after(*process.channel);
  });
  std::thread daemon([&] {
    for (uint32_t first = 0; !over; first = (first + 1) % 8) process.tell(groups(first, 4));
  });
  for (int life = 0; life < 3000; ++life) {
    const CUstream stream = process.stream();
    submit(stream);
    partition::Ending ending(stream);
    g_driver.cuStreamDestroy_v2(stream);
    ending.end(true);
  }
  over = true;
  helper.join();
  daemon.join();
  CHECK_EQ(asked.load(), 0);
  CHECK_EQ(g_model->homeless, 0u);
}

TEST(a_stream_that_could_not_be_destroyed_is_where_it_was) {
  Process process(groups(0, 4));
  const CUstream stream = process.stream();
  submit(stream);
  partition::Ending(stream).end(false);
  submit(stream);
  CHECK_EQ(g_model->last_groups, 4u);
  CHECK_EQ(g_model->disordered, 0u);
}

TEST(what_a_call_of_settings_names_reaches_the_driver_as_it_is) {
  Process process(groups(0, 4));
  const CUstream to = process.stream(), from = process.stream();
  submit(to), submit(from);
  static CUstream seen[2];
  const auto copy = +[](CUstream target, CUstream source) {
    return seen[0] = target, seen[1] = source, CUDA_SUCCESS;
  };
  partition::hand_over<partition::how("cuStreamCopyAttributes"), false>(copy, to, from);
  CHECK(seen[0] == to && seen[1] == from);
}

TEST(who_only_adds_if_nobody_else_does_never_waits) {
  Process process(groups(0, 4));
  const CUstream stream = process.stream();
  submit(stream);
  const partition::Stream held(stream, partition::How::kHold);
  const partition::Stream tried(stream, partition::How::kHoldIfFree);
  CHECK(!tried.is_free());
}

// More sets than a process keeps, the helper, and two threads, each mostly on one stream for a
// while. So the locks are biased first to one thread, then to the other.
TEST(whatever_is_told_meanwhile_no_order_is_lost_and_no_set_is_used_that_is_gone) {
  constexpr int kSteps = 3000, kStreams = 3, kAWhile = 600;
  Process process(groups(0, 4));
  partition::allow_biases();
  std::vector<CUstream> streams;
  for (int i = 0; i < kStreams; ++i) streams.push_back(process.stream());
  std::atomic<bool> stop{false};
  const auto has_switched = [&] { return process.channel->state->sets.switches.load() > 0; };
  const auto work = [&](unsigned seed) {
    std::minstd_rand chance(seed);
    // On a busy machine all steps may end before the daemon's thread has run.
    for (int i = 0; i < kSteps || (!has_switched() && i < 1000 * kSteps); ++i) {
      if (i >= kSteps) std::this_thread::yield();
      const bool is_other = chance() % 64 == 0;
      const CUstream stream = streams[(is_other ? chance() : i / kAWhile + seed) % kStreams];
      if (chance() % 8 == 0) const partition::Stream looked(stream, partition::How::kLook);
      else submit(stream);
    }
  };
  std::thread helper([&] {
    while (!stop) partition::look_after(*process.channel);
  });
  std::thread daemon([&] {
    std::minstd_rand chance(3);
    while (!stop) {
      const uint32_t first = static_cast<uint32_t>(chance() % kGroups);
      process.tell(groups(first, 1 + static_cast<uint32_t>(chance() % (kGroups - first))));
      std::this_thread::yield();
    }
  });
  std::thread first(work, 1), second(work, 2);
  first.join(), second.join();
  stop = true;
  helper.join(), daemon.join();
  CHECK_EQ(g_model->disordered, 0u);
  CHECK_EQ(g_model->homeless, 0u);
  CHECK(has_switched());
}
