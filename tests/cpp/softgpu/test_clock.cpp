// How time passes: serial delivery, ties, observers, START_CLIENTS, and the real clock.
#include "check.h"
#include "simulation.h"

using namespace tandem::softgpu;

namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kPatienceNs = uint64_t{kObserverPatienceMs} * kMs;

}  // namespace

TEST(time_stands_still_while_a_client_is_busy) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t op = s.submit(a, kernel(kMs));
  s.real_ns = 1'000'000 * kMs;  // however long that takes
  s.idle(a);
  CHECK(s.peers[a].done.empty());
  s.idle(b);
  CHECK_EQ(s.done(a, op).end_ns, kMs);
}

TEST(an_idle_that_counts_too_few_packets_is_ignored) {
  Simulation s;
  const uint32_t a = s.join();
  const uint64_t op = s.submit(a, kernel(kMs));
  s.send(a, Type::kIdle, Idle{{}, s.peers[a].received - 1, kNever});
  CHECK(s.peers[a].done.empty());
  s.idle(a);
  CHECK_EQ(s.done(a, op).end_ns, kMs);
}

TEST(an_idle_that_counts_packets_never_sent_is_an_error) {
  Simulation s;
  const uint32_t a = s.join();
  s.send(a, Type::kIdle, Idle{{}, 99, kNever});
  CHECK(s.peers[a].closed);
}

// Sends IDLE by hand: the operation it waits for, and how many other ends it may miss meanwhile.
void wait_for(Simulation* s, uint32_t a, uint64_t op, uint64_t patience) {
  s->send(a, Type::kIdle, Idle{{}, s->peers[a].received, kNever, patience, {op}});
}

TEST(ends_that_nobody_waits_for_come_with_the_one_that_is_awaited) {
  Simulation s;
  const uint32_t a = s.join();
  s.peers[a].goes_idle = false;
  s.submit(a, kernel(kMs));
  const uint64_t awaited = s.submit(a, kernel(kMs));
  s.submit(a, kernel(kMs));
  wait_for(&s, a, awaited, kNever);
  CHECK_EQ(s.peers[a].done.size(), 2u);
  CHECK_EQ(s.engine.now_ns(), 2 * kMs);
  wait_for(&s, a, 0, kNever);  // nothing more will happen: the last one comes anyway
  CHECK_EQ(s.peers[a].done.size(), 3u);
}

TEST(patience_ends_after_as_many_ends_as_were_named) {
  Simulation s;
  const uint32_t a = s.join();
  s.peers[a].goes_idle = false;
  for (int i = 0; i < 5; ++i) s.submit(a, kernel(kMs));
  wait_for(&s, a, 0, 3);
  CHECK_EQ(s.peers[a].done.size(), 3u);
}

TEST(a_failure_and_a_written_word_are_told_at_once) {
  Settings settings = tiny_settings();
  CHECK(settings.faults.parse("launch:bad@1").empty());
  Simulation s(settings);
  const uint32_t a = s.join();
  s.peers[a].goes_idle = false;
  s.submit(a, kernel(kMs));
  s.submit(a, of_kind(OpKind::kMemOpWrite));
  s.submit(a, kernel(kMs, "bad"));
  s.submit(a, kernel(kMs));
  wait_for(&s, a, 0, kNever);
  CHECK_EQ(s.peers[a].done.size(), 2u);
  CHECK_EQ(s.engine.now_ns(), kMs);
  wait_for(&s, a, 0, kNever);
  CHECK_EQ(s.peers[a].done.size(), 4u);
  CHECK_EQ(s.engine.now_ns(), 2 * kMs);
}

TEST(a_client_that_goes_on_by_itself_first_hears_what_was_kept_back) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  s.peers[a].goes_idle = s.peers[b].goes_idle = false;
  s.submit(a, kernel(kMs));
  wait_for(&s, a, 0, kNever);
  s.peers[b].deadline_ns = 2 * kMs;
  s.idle(b);
  CHECK(s.peers[a].done.empty());
  s.send(a, Type::kSyncTime, SyncTime{});
  CHECK_EQ(s.peers[a].done.size(), 1u);
  CHECK(s.peers[a].order == std::vector<char>({'D', 'T'}));
}

TEST(sleepers_wake_at_their_deadlines_in_order) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  s.peers[a].deadline_ns = 2 * kMs;
  s.peers[b].deadline_ns = kMs;
  s.run();
  CHECK_EQ(s.peers[a].times.at(0), 2 * kMs);
  CHECK_EQ(s.peers[b].times.at(0), kMs);
}

// Joins a client that looks every 0.1 ms at most, does nothing else, and is woken at 10 ms anyway.
uint32_t join_looker(Simulation* s) {
  const uint32_t a = s->join(1);
  s->peers[a].look_step_ns = kMs / 10;
  s->peers[a].only_looked = true;
  s->peers[a].deadline_ns = 10 * kMs;
  return a;
}

TEST(who_looks_hears_at_once_that_another_was_at_work) {
  Simulation s;
  const uint32_t a = join_looker(&s), b = s.join(2);
  s.peers[b].deadline_ns = kMs;
  s.run();
  CHECK(s.peers[a].looks == std::vector<uint64_t>({kMs / 10, kMs}));  // b began, and was woken
  CHECK_EQ(s.peers[a].times.size(), 2u);
}

TEST(who_looks_is_left_asleep_while_others_only_look) {
  Simulation s;
  const uint32_t a = join_looker(&s), b = s.join(2);
  s.peers[b].only_looked = true;
  s.peers[b].deadline_ns = kMs;
  s.run();
  CHECK_EQ(s.peers[b].times.back(), kMs);
  CHECK(s.peers[a].looks.empty());
  CHECK_EQ(s.engine.now_ns(), 10 * kMs);
}

TEST(who_looks_does_so_no_more_often_than_it_said) {
  Simulation s;
  const uint32_t a = join_looker(&s), b = s.join(2);
  s.peers[b].goes_idle = false;
  s.idle(a);
  for (uint64_t at = 0; at <= kMs; at += kMs / 100) {  // it works every 0.01 ms
    s.peers[b].deadline_ns = at;
    s.idle(b);
  }
  const std::vector<uint64_t>& looks = s.peers[a].looks;
  CHECK_EQ(looks.size(), 10u);
  for (size_t i = 1; i < looks.size(); ++i) CHECK_EQ(looks[i] - looks[i - 1], kMs / 10);
}

TEST(who_looks_hears_that_another_has_gone) {
  Simulation s;
  const uint32_t a = join_looker(&s), b = s.join(2), c = s.join(3);
  s.peers[b].only_looked = s.peers[c].only_looked = true;
  s.peers[c].goes_idle = false;
  s.peers[c].deadline_ns = kMs;
  s.idle(a);
  s.idle(b);
  s.idle(c);  // time now stands at 1 ms, for c
  CHECK(s.peers[a].looks.empty());
  s.close(b);
  s.idle(c);
  CHECK(s.peers[a].looks == std::vector<uint64_t>({kMs}));
}

TEST(one_client_at_a_time_hears_of_something) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  s.peers[a].deadline_ns = s.peers[b].deadline_ns = kMs;
  s.peers[a].goes_idle = s.peers[b].goes_idle = false;
  s.idle(b);
  s.idle(a);
  CHECK_EQ(s.peers[a].times.size(), 1u);  // a tie goes to the lowest id
  CHECK_EQ(s.peers[b].times.size(), 0u);
  s.idle(a);
  CHECK_EQ(s.peers[b].times.size(), 1u);
}

TEST(at_the_same_time_the_device_comes_before_sleepers) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  s.peers[a].deadline_ns = kMs;
  s.peers[a].goes_idle = s.peers[b].goes_idle = false;
  s.submit(b, kernel(kMs));
  s.idle(a);
  s.idle(b);
  CHECK_EQ(s.peers[b].done.size(), 1u);
  CHECK_EQ(s.peers[a].times.size(), 0u);
  s.idle(b);
  CHECK_EQ(s.peers[a].times.size(), 1u);
}

TEST(any_message_makes_an_idle_client_busy_again) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  s.peers[a].goes_idle = s.peers[b].goes_idle = false;
  s.idle(a);
  s.send(a, Type::kSyncTime, SyncTime{});
  CHECK_EQ(s.peers[a].times.at(0), 0u);
  s.submit(b, kernel(kMs));
  s.idle(b);
  CHECK(s.peers[b].done.empty());
  s.idle(a);
  CHECK_EQ(s.peers[b].done.size(), 1u);
}

TEST(order_of_arrival_among_busy_clients_does_not_matter) {
  const auto run = [](bool swapped) {
    Simulation s;
    const uint32_t a = s.join(1), b = s.join(2);
    for (int i = 0; i < 20; ++i) {
      s.submit(swapped ? b : a, kernel(kMs, "k"));
      s.submit(swapped ? a : b, kernel(kMs, "k"));
    }
    s.idle(swapped ? b : a);
    s.idle(swapped ? a : b);
    return s.timeline;
  };
  CHECK(run(false) == run(true));
  CHECK(!run(false).empty());
}

TEST(time_waits_for_the_clients_that_shall_start_together) {
  Settings settings = tiny_settings();
  settings.start_clients = 2;
  Simulation s(settings);
  const uint32_t o = s.join(9, kObserver), q = s.join(8, kQueryOnly), a = s.join(1);
  s.peers[o].deadline_ns = kMs;
  const uint64_t op = s.submit(a, kernel(kMs));
  s.idle(o);
  s.idle(a);
  s.real_ns = 100 * kMs;
  s.engine.advance(s.real_ns);
  s.receive();
  CHECK(s.peers[a].done.empty() && s.peers[o].times.empty());
  CHECK(s.peers[q].id != 0);
  s.idle(s.join(2));
  CHECK_EQ(s.done(a, op).end_ns, kMs);
}

TEST(observers_alone_keep_pace_with_real_time) {
  Simulation s;
  const uint32_t o = s.join(9, kObserver);
  s.peers[o].deadline_ns = 100 * kMs;
  s.peers[o].goes_idle = false;
  s.idle(o);
  CHECK(s.peers[o].times.empty());
  CHECK_EQ(s.engine.next_wake_real_ns(), 100 * kMs);
  s.real_ns = 99 * kMs;
  s.engine.advance(s.real_ns);
  s.receive();
  CHECK(s.peers[o].times.empty());
  s.real_ns = 100 * kMs;
  s.engine.advance(s.real_ns);
  s.receive();
  CHECK_EQ(s.peers[o].times.at(0), 100 * kMs);
}

// Jobs wait for input while a daemon looks from time to time: its timers must not race ahead.
TEST(timers_of_those_who_look_keep_pace_with_real_time_beside_clients_that_wait_for_nothing) {
  Simulation s;
  const uint32_t a = s.join(1), o = s.join(9, kObserver);
  s.peers[a].deadline_ns = 100 * kMs;
  s.peers[a].for_time = false;  // its helper looks now and then, too
  s.peers[o].deadline_ns = 80 * kMs;
  s.peers[o].goes_idle = false;
  s.idle(a);
  s.idle(o);
  CHECK(s.peers[o].times.empty());
  CHECK_EQ(s.engine.next_wake_real_ns(), 80 * kMs / kPace);
  s.real_ns = 80 * kMs / kPace - 1;
  s.engine.advance(s.real_ns);
  s.receive();
  CHECK(s.peers[o].times.empty());
  s.real_ns = 80 * kMs / kPace;
  s.engine.advance(s.real_ns);
  s.receive();
  CHECK_EQ(s.peers[o].times.at(0), 80 * kMs);
}

TEST(time_that_a_client_waits_for_passes_at_once_and_so_do_timers_before_it) {
  Simulation s;
  const uint32_t a = s.join(1), o = s.join(9, kObserver);
  s.peers[a].deadline_ns = 100 * kMs;
  s.peers[o].deadline_ns = 80 * kMs;
  s.peers[o].goes_idle = false;
  s.idle(a);
  s.idle(o);
  CHECK_EQ(s.peers[o].times.at(0), 80 * kMs);
  s.peers[o].deadline_ns = kNever;
  s.idle(o);
  CHECK_EQ(s.peers[a].times.at(0), 100 * kMs);
}

TEST(what_is_on_a_gpu_ends_at_once_and_so_do_timers_before_that) {
  Simulation s;
  const uint32_t a = s.join(1), o = s.join(9, kObserver);
  const uint64_t op = s.submit(a, kernel(kMs));
  s.peers[o].deadline_ns = kMs / 2;
  s.peers[o].goes_idle = false;
  s.idle(a);
  s.idle(o);
  CHECK_EQ(s.peers[o].times.at(0), kMs / 2);
  s.peers[o].deadline_ns = kNever;
  s.idle(o);
  CHECK_EQ(s.done(a, op).end_ns, kMs);
}

TEST(an_observer_silent_for_too_long_is_left_behind_until_it_speaks) {
  Simulation s;
  const uint32_t a = s.join(1), o = s.join(9, kObserver);
  s.peers[o].goes_idle = false;
  s.submit(a, kernel(kMs));
  s.run();
  CHECK(s.peers[a].done.empty());
  CHECK_EQ(s.engine.next_wake_real_ns(), kPatienceNs);
  s.real_ns = kPatienceNs;
  s.engine.advance(s.real_ns);
  s.receive();
  CHECK_EQ(s.peers[a].done.size(), 1u);

  s.send(o, Type::kSyncTime, SyncTime{});
  CHECK_EQ(s.peers[o].times.at(0), kMs);
  s.submit(a, kernel(kMs));
  s.run();
  CHECK_EQ(s.peers[a].done.size(), 1u);  // it counts again
  s.idle(o);
  CHECK_EQ(s.peers[a].done.size(), 2u);
}

TEST(a_client_that_goes_while_busy_does_not_stop_the_clock) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  s.submit(a, kernel(kMs));
  s.idle(a);
  s.close(b);
  CHECK_EQ(s.peers[a].done.size(), 1u);
}

TEST(on_the_real_clock_things_happen_when_they_are_due_however_late_one_looks) {
  Settings settings = tiny_settings();
  settings.clock = ClockKind::kReal;
  Simulation s(settings);
  s.real_ns = 10 * kMs;
  const uint32_t a = s.join();
  const uint64_t first = s.submit(a, kernel(kMs)), second = s.submit(a, kernel(kMs));
  CHECK_EQ(s.engine.next_wake_real_ns(), 11 * kMs);
  s.real_ns = 30 * kMs;
  s.engine.advance(s.real_ns);
  s.receive();
  CHECK_EQ(s.done(a, first).end_ns, 11 * kMs);
  CHECK_EQ(s.done(a, second).end_ns, 12 * kMs);
}

TEST(on_the_real_clock_a_late_body_ends_the_kernel) {
  Settings settings = tiny_settings();
  settings.clock = ClockKind::kReal;
  Simulation s(settings);
  const uint32_t a = s.join();
  s.peers[a].executes = false;
  Work work = kernel(kMs);
  work.needs_body = true;
  const uint64_t op = s.submit(a, work);
  s.real_ns = 2 * kMs;
  s.engine.advance(s.real_ns);
  s.receive();
  CHECK(s.peers[a].done.empty());
  s.real_ns = 3 * kMs;
  s.send(a, Type::kBody, Body{{}, op, 0, 0, 0});
  CHECK_EQ(s.done(a, op).end_ns, 3 * kMs);
}
