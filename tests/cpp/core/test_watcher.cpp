#include "daemon/watcher.h"

#include <sys/stat.h>

#include "check.h"
#include "fake_shim.h"

using namespace tandem::daemon;
namespace shm = tandem::shm;

namespace {

struct Job {
  explicit Job(uint64_t id) : channel(make_channel(id)), shim(*channel) {}
  std::unique_ptr<Channel> channel;
  FakeShim shim;

  void record(uint64_t ticks, uint32_t ring = 0, uint64_t duration_ns = 0) {
    shm::Record r{};
    r.duration_ns = duration_ns;
    r.ticks = ticks;
    r.kind = static_cast<uint8_t>(shm::RecordKind::kLaunch);
    write_record(shim.ring_header(ring), shim.ring(ring), r);
  }

  // kind: as in tandem_mark.h.
  void mark(uint8_t kind, uint64_t ticks, uint32_t ring, uint64_t number, uint64_t value = 0) {
    shm::Record r{};
    r.ticks = ticks;
    r.kind = static_cast<uint8_t>(shm::RecordKind::kMark);
    r.flags = kind;
    r.object = number;
    r.value = value;
    write_record(shim.ring_header(ring), shim.ring(ring), r);
  }
};

// Returned by value, because CHECK_EQ keeps references.
Snapshot first_of(const Watcher& watcher) { return watcher.snapshots().front(); }

size_t resident_bytes(const Job& job) {
  struct stat status;
  if (fstat(job.channel->state_fd(), &status) != 0) std::abort();
  return static_cast<size_t>(status.st_blocks) * 512;
}

}  // namespace

TEST(the_usual_iteration_begins_anew_where_its_launches_are_on_other_sms) {
  MarkedSteps steps;
  uint64_t now_ns = 0;
  const auto iteration = [&](uint64_t ns, uint8_t flags = 0) {
    shm::Record launch{};
    launch.kind = static_cast<uint8_t>(shm::RecordKind::kLaunch);
    launch.flags = flags;
    launch.ticks = now_ns;
    steps.take(launch);
    shm::Record mark{};
    mark.kind = static_cast<uint8_t>(shm::RecordKind::kMark);
    mark.flags = 1;  // the end of a step
    mark.ticks = now_ns += ns;
    steps.take(mark);
    return steps.duration();
  };
  iteration(100);  // durations are measured from here on
  CHECK_EQ(iteration(100), 100u);
  CHECK_EQ(iteration(500), 200u);
  CHECK_EQ(iteration(700, shm::kRecordStale), 700u);
  CHECK_EQ(iteration(800), 800u);  // the first whole one
  CHECK_EQ(iteration(400), 700u);
}

TEST(a_process_is_watched_once_and_forgotten_once) {
  Job job(1);
  Watcher watcher;
  CHECK(watcher.add(job.channel->pages(), 1, 0));
  CHECK(!watcher.add(job.channel->pages(), 2, 0));
  CHECK_EQ(watcher.snapshots().size(), 1u);
  CHECK(watcher.remove(1));
  CHECK(!watcher.remove(1));
}

TEST(what_a_process_did_since_the_last_round_is_seen_when_it_leaves) {
  Job job(1);
  Watcher watcher;
  watcher.add(job.channel->pages(), 1, 0);
  watcher.round(1'000);
  job.shim.state().refusals.count[0].fetch_add(1, std::memory_order_relaxed);
  job.shim.state().memory.device_bytes.store(4096, std::memory_order_relaxed);
  const auto last = watcher.remove(1);
  CHECK_EQ(last->refused_by[0], 1u);
  CHECK_EQ(last->device_bytes, 4096u);
}

TEST(snapshots_come_in_the_order_of_process_ids) {
  Job first(1);
  Job second(2);
  Watcher watcher;
  watcher.add(second.channel->pages(), 1, 0);
  watcher.add(first.channel->pages(), 9, 0);
  const auto snapshots = watcher.snapshots();
  CHECK_EQ(snapshots[0].process_id, 1u);
  CHECK_EQ(snapshots[1].process_id, 2u);
}

TEST(an_interval_is_charged_to_who_was_busy_when_it_began) {
  Job first(1);
  Job second(2);
  Watcher watcher;
  watcher.add(first.channel->pages(), 1, 0);
  watcher.add(second.channel->pages(), 2, 0);
  first.shim.set_slot(0, 1, 0);
  watcher.round(1000);
  second.shim.set_slot(0, 1, 0);
  watcher.round(1600);  // only the first until now
  first.shim.set_slot(0, 1, 1);
  watcher.round(2600);  // both until now
  watcher.round(3000);  // only the second

  const auto snapshots = watcher.snapshots();

  CHECK_EQ(snapshots[0].exclusive_ns, 600u);
  CHECK_EQ(snapshots[0].shared_ns, 500u);
  CHECK_EQ(snapshots[1].exclusive_ns, 400u);
  CHECK_EQ(snapshots[1].shared_ns, 500u);
}

TEST(what_two_share_is_split_by_the_sms_that_they_were_said_to_take) {
  Job first(1);
  Job second(2);
  Watcher watcher;
  watcher.add(first.channel->pages(), 1, 0);
  watcher.add(second.channel->pages(), 2, 0);
  CHECK(watcher.weigh(1, 1, 8));
  CHECK(watcher.weigh(2, 3, 8));
  CHECK(!watcher.weigh(3, 3, 8));
  first.shim.set_slot(0, 1, 0);
  second.shim.set_slot(0, 1, 0);
  watcher.round(1000);
  watcher.round(1800);
  watcher.weigh(2, 0, 0);  // no longer known
  watcher.round(2000);

  const auto snapshots = watcher.snapshots();

  CHECK_EQ(snapshots[0].shared_ns, 300u);
  CHECK_EQ(snapshots[1].shared_ns, 700u);
  CHECK_EQ(snapshots[0].even_ns, 500u);
  CHECK_EQ(snapshots[1].even_ns, 500u);
}

TEST(a_window_knows_what_of_it_ran_beside_others) {
  Job first(1);
  Job second(2);
  Watcher watcher;
  watcher.add(first.channel->pages(), 1, 0);
  watcher.add(second.channel->pages(), 2, 0);
  first.shim.set_slot(0, 1, 0);
  watcher.round(1000);
  watcher.want_window(1);
  watcher.round(2000);
  second.shim.set_slot(0, 1, 0);
  watcher.round(4000);
  second.shim.set_slot(0, 1, 1);
  watcher.round(4600);  // both until now
  const uint64_t late_ns = 1000 + WindowTaker::kLongestNs;
  watcher.round(late_ns);  // no iteration ended

  const auto window = watcher.window(1);

  CHECK_EQ(window->begin_ns, 1000u);
  CHECK_EQ(window->end_ns, late_ns);
  CHECK_EQ(window->shared_ns, 600u);
  CHECK_EQ(window->busy_ns, late_ns - 1000u);
}

TEST(a_sample_is_had_together_with_its_window_and_another_waits_for_both) {
  Job job(1);
  Watcher watcher;
  watcher.add(job.channel->pages(), 1, 0);
  watcher.round(1000);
  CHECK_EQ(*watcher.begin_sample(1, {1, true, 2000}), 1u);
  watcher.round(2000);
  watcher.round(3000);  // its time is over, so the sample has ended
  CHECK(!watcher.take_sample(1, 1));
  CHECK_EQ(*watcher.begin_sample(1, {1, true, 2000}), 0u);
  const uint64_t late_ns = 1000 + WindowTaker::kLongestNs;
  watcher.round(late_ns);  // and so has its window
  watcher.want_window(1);
  watcher.round(late_ns + WindowTaker::kLongestNs);  // a window for somebody else

  CHECK(!watcher.take_sample(1, 2));
  const auto sample = watcher.take_sample(1, 1);
  CHECK_EQ(sample->window->begin_ns, 1000u);
  CHECK_EQ(sample->window->end_ns, late_ns);
  CHECK(watcher.window(1)->end_ns != late_ns);
  CHECK(!watcher.take_sample(1, 1));
  CHECK_EQ(*watcher.begin_sample(1, {1, false, 2000}), 2u);
  CHECK(!watcher.begin_sample(7, {1, false, 2000}));
}

TEST(predicted_times_of_launches_add_up_and_a_liars_end_at_a_bound) {
  Job job(1);
  Watcher watcher;
  watcher.add(job.channel->pages(), 1, 0);
  job.record(1);  // nothing is known of it
  job.record(2, 0, 5'000);
  job.record(3, 1, 7'000);
  watcher.round(1000);

  CHECK_EQ(first_of(watcher).work_ns, 12'000u);
  CHECK_EQ(first_of(watcher).timed_count, 2u);

  for (int i = 0; i < 3'000; ++i) {
    for (int k = 0; k < 1'000; ++k) job.record(4, 0, UINT64_MAX);
    watcher.round(2000);
  }
  CHECK_EQ(first_of(watcher).work_ns, static_cast<uint64_t>(INT64_MAX));
}

TEST(memory_is_noted_where_an_iteration_ends) {
  Job job(1);
  Watcher watcher;
  watcher.add(job.channel->pages(), 1, 0);
  job.shim.state().memory.device_bytes.store(10);
  watcher.round(1000);
  CHECK_EQ(first_of(watcher).iteration_bytes, 0u);

  job.shim.state().marks.steps.store(1);
  watcher.round(2000);
  job.shim.state().memory.device_bytes.store(99);
  watcher.round(3000);

  CHECK_EQ(first_of(watcher).iteration_bytes, 10u);
}

TEST(what_processes_claim_is_looked_at_now) {
  Job job(1);
  Watcher watcher;
  watcher.add(job.channel->pages(), 1, 0);
  watcher.round(1000);
  shm::StatePage& page = job.shim.state();
  const auto claims = [&](uint64_t resident, uint64_t taken) {
    const std::vector<MemoryClaim> found = watcher.memory_claims();
    return found.size() == 1 && found[0].process_id == job.channel->pages()->process_id() &&
           found[0].resident_bytes == resident && found[0].taken_bytes == taken;
  };
  page.memory.device_bytes.store(10);
  CHECK(claims(10, 10));  // an older shim reports only this
  page.memory.taken_bytes.store(30);
  page.swap.swapped_bytes.store(4);
  CHECK(claims(6, 26));
  page.swap.swapped_bytes.store(UINT64_MAX);
  CHECK(claims(0, 0));
}

TEST(a_clock_that_goes_back_charges_nothing) {
  Job job(1);
  Watcher watcher;
  watcher.add(job.channel->pages(), 1, 0);
  job.shim.set_slot(0, 1, 0);
  watcher.round(1000);
  watcher.round(500);
  CHECK_EQ(first_of(watcher).exclusive_ns, 0u);
}

TEST(records_are_read_although_nobody_asks_and_what_was_overwritten_is_counted) {
  Job job(1);
  Watcher watcher;
  watcher.add(job.channel->pages(), 1, 0);
  for (uint64_t i = 0; i < 5000; ++i) job.record(i);

  watcher.round(1000);

  CHECK_EQ(first_of(watcher).records, shm::kRingRecords - 1);
  CHECK_EQ(first_of(watcher).dropped_records, 5000 - (shm::kRingRecords - 1));
}

TEST(records_come_once_somebody_asks_with_their_ticks_as_nanoseconds) {
  Job job(1);
  job.shim.state().control.ns_per_tick_q32.store(uint64_t{2} << 32);
  job.shim.state().control.tick_base_ns.store(100);
  Watcher watcher;
  watcher.add(job.channel->pages(), 1, 0);
  watcher.round(1000);
  CHECK(watcher.take_records(10).empty());
  job.record(20, 0);
  job.record(10, 1);

  watcher.round(2000);
  const auto runs = watcher.take_records(10);

  CHECK_EQ(runs.size(), 1u);
  CHECK_EQ(runs[0].process_id, 1u);
  CHECK_EQ(runs[0].records.size(), 2u);
  CHECK_EQ(runs[0].records[0].ticks, 120u);  // rings are merged by time
  CHECK_EQ(runs[0].records[1].ticks, 140u);
}

TEST(only_what_somebody_wants_is_kept_and_nothing_else_counts_as_lost) {
  Job job(1);
  Watcher watcher;
  watcher.add(job.channel->pages(), 1, 0);
  const auto kind = static_cast<uint32_t>(shm::RecordKind::kLaunch);
  job.record(1);
  watcher.round(1000);
  watcher.take_records(0, ~(1u << kind));
  for (uint64_t i = 0; i < 10; ++i) job.record(i);
  watcher.round(2000);
  CHECK(watcher.take_records(10, 1u << kind).empty());
  job.record(20);
  watcher.round(3000);
  CHECK_EQ(watcher.take_records(10, 0).size(), 1u);
  job.record(30);
  watcher.round(4000);
  CHECK(watcher.take_records(10).empty());
  CHECK_EQ(first_of(watcher).records, 13u);
  CHECK_EQ(first_of(watcher).dropped_records, 0u);
}

TEST(a_limit_leaves_the_rest_for_later) {
  Job first(1);
  Job second(2);
  Watcher watcher;
  watcher.add(first.channel->pages(), 1, 0);
  watcher.add(second.channel->pages(), 2, 0);
  watcher.take_records(0);
  for (uint64_t i = 0; i < 3; ++i) {
    first.record(i);
    second.record(i);
  }
  watcher.round(1000);

  auto runs = watcher.take_records(4);
  CHECK_EQ(runs.size(), 2u);
  CHECK_EQ(runs[1].records.size(), 1u);
  runs = watcher.take_records(4);
  CHECK_EQ(runs.size(), 1u);
  CHECK_EQ(runs[0].process_id, 2u);
  CHECK_EQ(runs[0].records.size(), 2u);
}

TEST(a_full_buffer_drops_in_the_ring_and_counts_it) {
  Job job(1);
  Watcher watcher;
  watcher.add(job.channel->pages(), 1, 0);
  watcher.take_records(0);
  const uint64_t written = RecordBuffer::kCapacity + 4000;
  for (uint64_t i = 0; i < written; ++i) {
    job.record(i);
    if (i % 500 == 0) watcher.round(1000 + i);
  }
  watcher.round(2'000'000);
  size_t kept = 0;
  for (const auto& run : watcher.take_records(SIZE_MAX)) kept += run.records.size();
  watcher.round(3'000'000);
  for (const auto& run : watcher.take_records(SIZE_MAX)) kept += run.records.size();

  const Snapshot snapshot = first_of(watcher);

  CHECK_EQ(kept, snapshot.records);
  CHECK(snapshot.dropped_records > 0);
  CHECK_EQ(snapshot.records + snapshot.dropped_records, written);
}

TEST(a_ring_taken_out_of_order_is_found) {
  Job job(1);
  Watcher watcher;
  watcher.add(job.channel->pages(), 1, 0);
  watcher.take_records(0);
  uint64_t now_ns = 0;
  watcher.round(++now_ns);
  job.record(1, 0);
  job.record(2, 5);
  for (uint32_t i = 0; i < 16; ++i) watcher.round(++now_ns);
  CHECK_EQ(first_of(watcher).records, 2u);
  job.record(3, 5);
  job.record(4, 6);
  watcher.round(++now_ns);
  CHECK_EQ(first_of(watcher).records, 4u);
}

TEST(only_what_differs_is_told_again) {
  Job first(1);
  Job second(2);
  Watcher watcher;
  watcher.add(second.channel->pages(), 1, 0);
  watcher.add(first.channel->pages(), 2, 0);
  watcher.round(1);
  CHECK_EQ(watcher.changed().size(), 2u);
  watcher.round(2);
  CHECK(watcher.changed().empty());

  second.shim.state().memory.device_bytes.store(4096);
  watcher.round(3);
  second.shim.state().memory.alloc_count.store(1);
  watcher.round(4);
  const auto changed = watcher.changed();
  CHECK_EQ(changed.size(), 1u);
  CHECK_EQ(changed[0].process_id, 2u);
  CHECK_EQ(changed[0].device_bytes, 4096u);
  CHECK(watcher.changed().empty());

  // A wait in line for memory is reported in steps until it ends.
  auto& in_line_ns =
      second.shim.state().waits.total_ns[static_cast<size_t>(shm::WaitReason::kMemory)];
  in_line_ns.store(kLineStepNs - 1);
  watcher.round(5);
  CHECK(watcher.changed().empty());
  in_line_ns.store(kLineStepNs);
  watcher.round(6);
  CHECK_EQ(watcher.changed().size(), 1u);

  watcher.remove(2);
  watcher.add(second.channel->pages(), 1, 0);
  watcher.round(7);
  CHECK_EQ(watcher.changed().size(), 1u);  // the previous state is forgotten
}

TEST(interest_in_records_ends_by_itself) {
  Job job(1);
  Watcher watcher;
  watcher.add(job.channel->pages(), 1, 0);
  watcher.round(1000);
  watcher.take_records(0);
  watcher.round(1000 + RecordBuffer::kInterestNs);
  job.record(1);
  watcher.round(2000 + RecordBuffer::kInterestNs);
  CHECK(watcher.take_records(10).empty());
}

TEST(rings_never_used_stay_unallocated) {
  Job job(1);
  Watcher watcher;
  watcher.add(job.channel->pages(), 1, 0);
  watcher.take_records(0);
  for (uint64_t now = 1; now < 50; ++now) watcher.round(now);
  CHECK(resident_bytes(job) <= shm::kRingsOffset);
}

TEST(doorbells_and_stamps_reach_every_process) {
  Job first(1);
  Job second(2);
  Watcher watcher;
  watcher.add(first.channel->pages(), 1, 0);
  watcher.add(second.channel->pages(), 2, 0);
  second.shim.state().control.doorbell.store(9);
  CHECK(watcher.round(10));

  std::vector<FutexWaiter> waiters;
  std::vector<std::shared_ptr<const Pages>> held;
  watcher.doorbells(&waiters, &held);
  watcher.stamp(77);

  CHECK_EQ(waiters.size(), 2u);
  CHECK_EQ(waiters[1].expected, 9u);
  CHECK_EQ(held.size(), 2u);
  CHECK_EQ(second.channel->pages()->command().heartbeat.tick_ns.load(), 77u);
}

TEST(gaps_of_the_latency_class_are_known_over_all_threads) {
  Job job(1);
  Watcher watcher;
  watcher.add(job.channel->pages(), 1, 0);
  job.channel->set_class(shm::JobClass::kLatency);
  job.shim.state().control.ns_per_tick_q32.store(uint64_t{1} << 32);
  job.shim.state().control.linger_ns.store(500'000);
  const auto rounds = [&](uint64_t from, uint64_t until) {
    for (uint64_t i = from; i < until; ++i) {  // two threads alternate, each every 4 ms
      job.record(i * 2'000'000, static_cast<uint32_t>(i % 2), 400'000);
      if (i % 8 == 7) watcher.round(i * 2'000'000 + 1);
    }
  };
  rounds(0, 32);
  CHECK_EQ(first_of(watcher).gap_p50_ns, 0u);

  rounds(32, 64);

  const Snapshot snapshot = first_of(watcher);
  CHECK(snapshot.gap_p50_ns >= 900'000 && snapshot.gap_p50_ns <= 1'300'000);  // 1.6 ms - linger
  CHECK(snapshot.gap_p90_ns >= snapshot.gap_p50_ns);
  for (uint64_t i = 0; i < 2 * shm::kRingRecords; ++i) job.record(200'000'000, 0, 400'000);
  watcher.round(200'000'001);
  CHECK_EQ(first_of(watcher).gap_p50_ns, 0u);  // records were lost
}

TEST(gaps_of_others_are_nobodys_business) {
  Job job(1);
  Watcher watcher;
  watcher.add(job.channel->pages(), 1, 0);
  job.shim.state().control.ns_per_tick_q32.store(uint64_t{1} << 32);
  const auto round = [&](uint64_t from) {
    for (uint64_t i = from; i < from + 64; ++i) job.record(i * 2'000'000, 0, 400'000);
    watcher.round((from + 64) * 2'000'000);
  };
  round(0);
  CHECK_EQ(first_of(watcher).gap_p50_ns, 0u);
  job.channel->set_class(shm::JobClass::kLatency);
  round(64);
  CHECK(first_of(watcher).gap_p50_ns > 0);

  job.channel->set_class(shm::JobClass::kNormal);
  watcher.round(300'000'000);

  CHECK_EQ(first_of(watcher).gap_p50_ns, 0u);
}

TEST(requests_are_told_over_all_threads_once_somebody_asked) {
  Job job(1);
  Watcher watcher;
  watcher.add(job.channel->pages(), 1, 0);
  job.shim.state().control.ns_per_tick_q32.store(uint64_t{1} << 32);
  job.record(1'000'000, 0, 400'000);
  watcher.round(2'000'000);
  CHECK(watcher.take_requests(1, 1'000'000, 0)->ended.empty());  // nobody had asked before

  job.record(10'000'000, 1, 300'000);
  job.record(10'100'000, 0, 400'000);
  job.record(10'600'000, 1, 100'000);  // in the same stream: one after the other
  watcher.round(20'000'000);

  const auto requests = watcher.take_requests(1, 1'000'000, 0);
  CHECK_EQ(requests->ended.size(), 1u);
  CHECK_EQ(requests->ended.front().duration_ns, 800'000u);
  CHECK(requests->kind == tandem::dag::RequestKind::kBurst);
  CHECK(!watcher.take_requests(2, 1'000'000, 0));
}

TEST(requests_that_are_marked_are_told_although_nobody_asked) {
  constexpr uint8_t kBegin = 5, kEnd = 6;
  Job job(1);
  Watcher watcher;
  watcher.add(job.channel->pages(), 1, 0);
  job.shim.state().control.ns_per_tick_q32.store(uint64_t{1} << 32);
  job.record(1'000'000, 0, 400'000);
  job.record(9'000'000, 0, 400'000);
  watcher.round(19'000'000);
  CHECK(!first_of(watcher).marks_requests);
  (void)watcher.changed();

  job.mark(kEnd, 13'000'000, 0, 1);  // by another thread, whose ring is read first
  job.mark(kBegin, 10'000'000, 1, 1, 50'000'000);
  job.mark(kBegin, 14'000'000, 1, 2);
  watcher.round(20'000'000);
  job.mark(kEnd, 24'000'000, 1, 2);
  watcher.round(30'000'000);

  CHECK_EQ(watcher.changed().size(), 1u);
  CHECK(first_of(watcher).marks_requests);
  const auto requests = watcher.take_requests(1, 1'000'000, 0);
  CHECK(requests->kind == tandem::dag::RequestKind::kMarked);
  CHECK_EQ(requests->ended.size(), 2u);
  CHECK_EQ(requests->ended[0].duration_ns, 3'000'000u);
  CHECK_EQ(requests->ended[0].objective_ns, 50'000'000u);
  CHECK_EQ(requests->ended[1].duration_ns, 10'000'000u);
  CHECK_EQ(requests->ended[1].objective_ns, 0u);
}

TEST(a_request_that_takes_longer_than_its_limit_is_notable) {
  Job job(1);
  Watcher watcher;
  watcher.add(job.channel->pages(), 1, 0);
  job.shim.state().control.ns_per_tick_q32.store(uint64_t{1} << 32);
  watcher.round(1'000'000);
  const auto burst_makes_news = [&](uint64_t at_ns, uint64_t limit_ns) {
    (void)watcher.take_requests(1, 1'000'000, limit_ns);
    job.record(at_ns, 0, 400'000);
    return watcher.round(at_ns + 5'000'000);
  };

  CHECK(!burst_makes_news(10'000'000, 0));
  CHECK(!burst_makes_news(20'000'000, 500'000));
  CHECK(burst_makes_news(30'000'000, 300'000));
  CHECK(!watcher.round(36'000'000));  // it is news only once
}
