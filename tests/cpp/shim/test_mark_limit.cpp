#include "mark_limit.h"

#include "check.h"
#include "pages.h"

using namespace pages;
using tandem::shim::stop_at_limit;
using tandem::shm::LimitKind;
using tandem::shm::mark_limit_of;
using tandem::shm::WaitReason;

namespace {

constexpr uint32_t kNoSlot = ~uint32_t{0} - 1;

bool is_held(Channel* channel) { return channel->gate.obstacle(kNoSlot) == WaitReason::kGate; }

uint64_t stopped(Channel* channel, LimitKind kind) {
  return channel->state->iterations.stopped[static_cast<uint32_t>(kind)];
}

}  // namespace

TEST(without_a_limit_nobody_stops) {
  Channel* channel = make_channel();
  stop_at_limit(*channel, LimitKind::kStep, 3);
  CHECK_EQ(stopped(channel, LimitKind::kStep), 0u);
  CHECK_EQ(channel->state->control.doorbell.load(), 0u);
}

TEST(who_stops_says_so_and_goes_on_at_a_higher_limit) {
  Channel* channel = make_channel();
  auto& limit = command_of(channel).gate.mark_limit;
  limit = mark_limit_of(LimitKind::kStep, 7);
  stop_at_limit(*channel, LimitKind::kStep, 6);
  CHECK(!is_held(channel));
  stop_at_limit(*channel, LimitKind::kStep, 7);
  CHECK_EQ(stopped(channel, LimitKind::kStep), 7u);
  CHECK_EQ(channel->state->control.doorbell.load(), 1u);
  CHECK(is_held(channel));
  limit = mark_limit_of(LimitKind::kStep, 8);
  CHECK(!is_held(channel));
}

TEST(a_limit_that_comes_late_lets_the_iteration_end) {
  Channel* channel = make_channel();
  // The job has marked six already, which the daemon had not seen.
  command_of(channel).gate.mark_limit = mark_limit_of(LimitKind::kStep, 5);
  CHECK(!is_held(channel));
  stop_at_limit(*channel, LimitKind::kStep, 7);
  CHECK_EQ(stopped(channel, LimitKind::kStep), 7u);
  CHECK(is_held(channel));
}

TEST(marks_of_another_kind_do_not_count) {
  Channel* channel = make_channel();
  auto& limit = command_of(channel).gate.mark_limit;
  limit = mark_limit_of(LimitKind::kPhase, 2);
  stop_at_limit(*channel, LimitKind::kStep, 9);
  CHECK(!is_held(channel));
  stop_at_limit(*channel, LimitKind::kPhase, 2);
  CHECK_EQ(stopped(channel, LimitKind::kStep), 0u);
  CHECK_EQ(stopped(channel, LimitKind::kPhase), 2u);
  CHECK(is_held(channel));
  limit = mark_limit_of(LimitKind::kStep, 1);
  CHECK(!is_held(channel));
}

TEST(of_two_threads_that_mark_at_once_the_later_mark_counts) {
  Channel* channel = make_channel();
  command_of(channel).gate.mark_limit = mark_limit_of(LimitKind::kStep, 5);
  stop_at_limit(*channel, LimitKind::kStep, 6);
  stop_at_limit(*channel, LimitKind::kStep, 5);
  CHECK_EQ(stopped(channel, LimitKind::kStep), 6u);
}

TEST(who_is_only_watched_does_not_stop) {
  Channel* channel = make_channel();
  channel->observe = true;
  command_of(channel).gate.mark_limit = mark_limit_of(LimitKind::kStep, 1);
  stop_at_limit(*channel, LimitKind::kStep, 1);
  CHECK_EQ(stopped(channel, LimitKind::kStep), 0u);
}
