#include "daemon/snapshot.h"

#include "check.h"
#include "fake_shim.h"

using namespace tandem::daemon;
namespace shm = tandem::shm;

namespace {

struct Fixture {
  std::unique_ptr<Channel> channel = make_channel(7);
  FakeShim job{*channel};
  Looker looker;
  Snapshot snapshot;

  const Snapshot& look(uint64_t now_ns = 1000) {
    looker.look(*channel->pages(), now_ns, &snapshot);
    return snapshot;
  }
};

}  // namespace

TEST(an_untouched_page_is_an_idle_process) {
  Fixture f;
  CHECK_EQ(f.look().process_id, 7u);
  CHECK(!f.snapshot.busy);
  CHECK_EQ(f.snapshot.live_slots, 0u);
}

TEST(outstanding_markers_and_open_work_count_as_segments) {
  Fixture f;
  f.job.set_slot(0, 5, 3);
  f.job.set_slot(1, 4, 4);
  f.job.set_slot(2, 2, 2);
  f.job.slot(2).open.store(9);

  f.look(500);

  CHECK(f.snapshot.busy);
  CHECK_EQ(f.snapshot.live_slots, 3u);
  CHECK_EQ(f.snapshot.open_segments, 3u);
}

TEST(what_a_job_says_of_its_sets_stays_within_bounds) {
  Fixture f;
  CHECK_EQ(f.look().in_set, 0u);
  shm::StateSets& sets = f.job.state().sets;
  sets.in.store(shm::word_of({1, 2, 8}));
  sets.in_turn.store(7);
  sets.following.store(UINT32_MAX);
  sets.staying[5].store(UINT32_MAX);
  sets.switches.store(9);

  const Snapshot before = f.snapshot;
  f.look();

  CHECK_EQ(f.snapshot.in_set, shm::word_of({1, 2, 8}));
  CHECK_EQ(f.snapshot.in_turn, 7u);
  CHECK_EQ(f.snapshot.following_streams, 65536u);
  CHECK_EQ(f.snapshot.staying_streams[5], 65536u);
  CHECK(differs(before, f.snapshot));
  CHECK(!f.snapshot.runs_graphs);
  sets.switches.store(3);
  sets.graphs.store(7);
  CHECK_EQ(f.look().set_switches, 9u);
  CHECK(f.snapshot.runs_graphs);
}

TEST(retired_free_and_unknown_slots_do_not_count) {
  Fixture f;
  for (const uint32_t state : {0u, 2u, 3u, UINT32_MAX}) {
    f.job.set_slot(state % 5, 9, 0);
    f.job.slot(state % 5).state.store(state);
  }
  CHECK(!f.look().busy);
  CHECK_EQ(f.snapshot.live_slots, 0u);
}

TEST(done_ahead_of_issued_is_nothing_outstanding) {
  Fixture f;
  f.job.set_slot(0, 3, 4);
  f.job.set_slot(1, 0, UINT64_MAX);
  CHECK(!f.look().busy);
}

TEST(a_slot_used_out_of_order_is_found_in_time) {
  Fixture f;
  f.look();
  f.job.set_slot(255, 1, 0);

  uint32_t looks = 1;
  while (!f.look().busy) CHECK(++looks <= Looker::kFullLookEvery);
}

TEST(the_next_slots_in_order_are_found_at_once) {
  Fixture f;
  for (uint32_t i = 0; i < shm::kSlotCount; i += Looker::kLookAhead / 2) {
    f.job.set_slot(i, 1, 1);
    const uint32_t before = f.snapshot.live_slots;
    CHECK_EQ(f.look().live_slots, before + 1);
  }
}

TEST(counters_never_go_back) {
  Fixture f;
  f.job.state().marks.steps.store(10);
  f.job.state().waits.total_ns[1].store(500);
  f.job.state().memory.alloc_count.store(9);
  f.job.state().memory.refused_count.store(2);
  f.job.state().refusals.count[1].store(2);
  f.look();
  f.job.state().marks.steps.store(1);
  f.job.state().waits.total_ns[1].store(0);
  f.job.state().memory.alloc_count.store(3);
  f.job.state().memory.refused_count.store(0);
  f.job.state().refusals.count[1].store(1);

  f.look();

  CHECK_EQ(f.snapshot.steps, 10u);
  CHECK_EQ(f.snapshot.wait_total_ns[1], 500u);
  CHECK_EQ(f.snapshot.alloc_count, 9u);
  CHECK_EQ(f.snapshot.refused_count, 2u);
  CHECK_EQ(f.snapshot.refused_by[1], 2u);
}

TEST(an_iteration_never_peaks_below_its_end) {
  Fixture f;
  shm::StateIterations& iterations = f.job.state().iterations;
  iterations.end_bytes.store(100);
  iterations.peak_bytes.store(30);
  iterations.stopped[0].store(5);
  iterations.stopped[1].store(6);

  f.look();

  CHECK_EQ(f.snapshot.iteration_end_bytes, 100u);
  CHECK_EQ(f.snapshot.iteration_peak_bytes, 100u);
  CHECK_EQ(f.snapshot.stopped[0], 5u);
  CHECK_EQ(f.snapshot.stopped[1], 6u);
}

TEST(what_is_swapped_is_part_of_what_there_is) {
  Fixture f;
  shm::StateSwap& swap = f.job.state().swap;
  f.job.state().memory.device_bytes.store(100);
  swap.swappable_bytes.store(UINT64_MAX);
  swap.swapped_bytes.store(UINT64_MAX);
  swap.filed_bytes.store(UINT64_MAX);
  swap.done.store(7 | uint64_t{99} << 32);
  f.look();
  CHECK_EQ(f.snapshot.swappable_bytes, 100u);
  CHECK_EQ(f.snapshot.swapped_bytes, 100u);
  CHECK_EQ(f.snapshot.filed_bytes, 100u);
  CHECK_EQ(f.snapshot.swap_done, 7u);
  CHECK(f.snapshot.swap_outcome == shm::SwapOutcome::kNone);

  swap.swappable_bytes.store(60);
  swap.swapped_bytes.store(40);
  swap.filed_bytes.store(10);
  swap.done.store(8 | uint64_t{static_cast<uint32_t>(shm::SwapOutcome::kReached)} << 32);
  f.look();
  CHECK_EQ(f.snapshot.swappable_bytes, 60u);
  CHECK_EQ(f.snapshot.swapped_bytes, 40u);
  CHECK_EQ(f.snapshot.filed_bytes, 10u);
  CHECK(f.snapshot.swap_outcome == shm::SwapOutcome::kReached);

  swap.swapped_bytes.store(0);  // all is mapped, the last copies are in flight
  f.look();
  CHECK_EQ(f.snapshot.filed_bytes, 10u);
}

TEST(what_was_copied_only_grows) {
  Fixture f;
  shm::StateSwap& swap = f.job.state().swap;
  swap.out_bytes.store(100);
  swap.out_ns.store(UINT64_MAX);
  swap.in_bytes.store(60);
  swap.in_ns.store(6);
  f.look();
  swap.out_bytes.store(99);
  swap.in_bytes.store(70);
  f.look();
  CHECK_EQ(f.snapshot.swap_out_bytes, 100u);
  CHECK_EQ(f.snapshot.swap_out_ns, uint64_t{INT64_MAX});
  CHECK_EQ(f.snapshot.swap_in_bytes, 70u);
  CHECK_EQ(f.snapshot.swap_in_ns, 6u);
}

TEST(absurd_figures_are_bounded) {
  Fixture f;
  f.job.state().memory.device_bytes.store(UINT64_MAX);
  f.job.state().marks.launches.store(UINT64_MAX);
  f.job.state().control.helper_tick_ns.store(UINT64_MAX);
  f.job.state().waits.waiting_threads.store(UINT32_MAX);
  f.job.state().waits.reason.store(77);
  f.job.state().waits.since_ns.store(9999);

  f.look(1000);

  CHECK_EQ(f.snapshot.device_bytes, static_cast<uint64_t>(INT64_MAX));
  CHECK_EQ(f.snapshot.peak_bytes, static_cast<uint64_t>(INT64_MAX));
  CHECK_EQ(f.snapshot.launches, static_cast<uint64_t>(INT64_MAX));
  CHECK_EQ(f.snapshot.helper_tick_ns, 1000u);
  CHECK_EQ(f.snapshot.waiting_threads, 1u << 22);
  CHECK(f.snapshot.wait_reason == shm::WaitReason::kNone);
  CHECK_EQ(f.snapshot.wait_since_ns, 1000u);
}

TEST(a_request_for_memory_is_seen_whole) {
  Fixture f;
  shm::StateMemory& memory = f.job.state().memory;
  memory.wait_bytes.store(4096);
  memory.wait_round.store(7);
  memory.wait_flags.store(shm::kWaitForQuota);
  CHECK_EQ(f.look().memory_ticket, 0u);  // no ticket, no request
  CHECK_EQ(f.snapshot.memory_wanted_bytes, 0u);

  memory.wait_ticket.store(3);
  const Snapshot before = f.snapshot;
  f.look();

  CHECK_EQ(f.snapshot.memory_ticket, 3u);
  CHECK_EQ(f.snapshot.memory_wanted_bytes, 4096u);
  CHECK_EQ(f.snapshot.memory_round, 7u);
  CHECK(f.snapshot.memory_of_quota && !f.snapshot.memory_alone);
  CHECK(notable(before, f.snapshot));
}

TEST(absurd_requests_for_memory_are_bounded) {
  Fixture f;
  f.job.state().memory.wait_ticket.store(1);
  f.job.state().memory.wait_bytes.store(UINT64_MAX);
  CHECK_EQ(f.look().memory_wanted_bytes, static_cast<uint64_t>(INT64_MAX));

  f.job.state().memory.wait_ticket.store(UINT64_MAX);
  CHECK_EQ(f.look().memory_ticket, 0u);
}

TEST(nobody_waiting_has_no_reason) {
  Fixture f;
  f.job.state().waits.reason.store(1);
  f.job.state().waits.since_ns.store(10);
  CHECK(f.look().wait_reason == shm::WaitReason::kNone);
  CHECK_EQ(f.snapshot.wait_since_ns, 0u);

  f.job.state().waits.waiting_threads.store(1);
  CHECK(f.look().wait_reason == shm::WaitReason::kGate);
  CHECK_EQ(f.snapshot.wait_since_ns, 10u);
}

TEST(notable_changes_are_those_a_scheduler_acts_on) {
  const Snapshot before;
  Snapshot after;
  CHECK(!notable(before, after));
  after.launches = 5;
  after.device_bytes = 5;
  CHECK(!notable(before, after));
  for (const auto change :
       {+[](Snapshot& s) { s.busy = true; }, +[](Snapshot& s) { s.waiting_threads = 1; },
        +[](Snapshot& s) { s.steps = 1; }, +[](Snapshot& s) { s.phase_hash = 1; },
        +[](Snapshot& s) { s.doorbell = 1; }, +[](Snapshot& s) { s.ungated = true; }}) {
    Snapshot changed;
    change(changed);
    CHECK(notable(before, changed));
  }
}

TEST(ticks_become_nanoseconds_that_are_never_in_the_future) {
  const TickClock clock{uint64_t{1} << 31, 1000, 100};  // half a nanosecond a tick
  CHECK_EQ(clock.to_ns(100, 5000), 1000u);
  CHECK_EQ(clock.to_ns(300, 5000), 1100u);
  CHECK_EQ(clock.to_ns(60, 5000), 980u);
  CHECK_EQ(clock.to_ns(UINT64_MAX, 5000), 5000u);
  CHECK_EQ((TickClock{UINT64_MAX, 10, UINT64_MAX}.to_ns(0, 5000)), 0u);
  CHECK_EQ((TickClock{1, UINT64_MAX, 0}.to_ns(5, 5000)), 5000u);
  CHECK_EQ((TickClock{uint64_t{1} << 32, 9000, 100}.to_ns(90, 5000)), 5000u);
  CHECK_EQ(TickClock{}.to_ns(7, 5000), 0u);
}
