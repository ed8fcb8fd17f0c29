#include "dag/requests.h"

#include <vector>

#include "check.h"

using namespace tandem::dag;
namespace shm = tandem::shm;

namespace {

constexpr uint64_t kUs = 1000;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kIdleNs = kMs;
constexpr uint8_t kStep = 1, kBegin = 5, kEnd = 6;

using Durations = std::vector<uint64_t>;

shm::Record record(shm::RecordKind kind, uint64_t at_ns, uint64_t duration_ns) {
  shm::Record made{};
  made.ticks = at_ns;
  made.kind = static_cast<uint8_t>(kind);
  made.stream = 16;
  made.duration_ns = duration_ns;
  made.value = uint64_t{1} << 32;  // context
  return made;
}

shm::Record launch(uint64_t at_ns, uint64_t duration_ns) {
  return record(shm::RecordKind::kLaunch, at_ns, duration_ns);
}

shm::Record sync(uint64_t at_ns, uint64_t waited_ns) {
  shm::Record made = record(shm::RecordKind::kSync, at_ns, waited_ns);
  made.value |= static_cast<uint64_t>(shm::SyncOf::kStream);
  return made;
}

shm::Record held(uint64_t until_ns, uint64_t waited_ns) {
  return record(shm::RecordKind::kWait, until_ns, waited_ns);
}

shm::Record mark(uint8_t kind, uint64_t at_ns, uint64_t number = 0, uint64_t value = 0) {
  shm::Record made = record(shm::RecordKind::kMark, at_ns, 0);
  made.flags = kind;
  made.object = number;
  made.value = value;
  return made;
}

RequestFinder after(const std::vector<shm::Record>& records) {
  RequestFinder finder(kIdleNs);
  for (const shm::Record& one : records) finder.take(one);
  return finder;
}

Durations durations_of(RequestFinder& finder) {
  Durations durations;
  for (const EndedRequest& ended : finder.take_ended()) durations.push_back(ended.duration_ns);
  return durations;
}

Durations held_of(RequestFinder& finder) {
  Durations durations;
  for (const EndedRequest& ended : finder.take_ended()) durations.push_back(ended.held_ns);
  return durations;
}

}  // namespace

TEST(a_burst_lasts_until_its_work_has_ended) {
  RequestFinder finder =
      after({launch(10 * kMs, 300 * kUs), launch(10 * kMs + 100 * kUs, 200 * kUs),
             launch(20 * kMs, 700 * kUs)});
  CHECK(durations_of(finder) == Durations{500 * kUs});

  finder.rest(21 * kMs);  // 300 us after its end: it may continue
  CHECK(durations_of(finder).empty());
  finder.rest(22 * kMs);

  CHECK(durations_of(finder) == Durations{700 * kUs});
  CHECK(finder.kind() == RequestKind::kBurst);
}

TEST(what_the_host_waited_for_has_ended_then_whatever_was_predicted) {
  RequestFinder finder =
      after({launch(10 * kMs, 100 * kUs), sync(10 * kMs + 900 * kUs, 800 * kUs)});
  finder.rest(20 * kMs);
  CHECK(durations_of(finder) == Durations{900 * kUs});
}

TEST(short_rests_are_part_of_a_burst) {
  RequestFinder finder = after({launch(10 * kMs, 100 * kUs), launch(11 * kMs, 100 * kUs)});
  finder.rest(20 * kMs);
  CHECK(durations_of(finder) == Durations{kMs + 100 * kUs});
}

TEST(waiting_for_a_turn_is_part_of_a_request) {
  RequestFinder finder = after({held(14 * kMs, 4 * kMs), launch(14 * kMs, 100 * kUs),
                                held(20 * kMs, 5 * kMs), launch(20 * kMs, 100 * kUs)});
  finder.rest(30 * kMs);
  CHECK(durations_of(finder) == Durations{10 * kMs + 100 * kUs});
}

TEST(of_a_request_it_is_told_for_how_long_its_process_was_held) {
  RequestFinder finder = after({held(14 * kMs, 4 * kMs), launch(14 * kMs, 100 * kUs),
                                held(20 * kMs, 5 * kMs), launch(20 * kMs, 100 * kUs)});
  finder.rest(30 * kMs);
  CHECK((held_of(finder) == Durations{9 * kMs}));

  finder.take(mark(kBegin, 40 * kMs, 1));
  finder.take(held(41 * kMs, 3 * kMs));  // since before it began
  finder.take(mark(kEnd, 42 * kMs, 1));
  finder.take(mark(kBegin, 50 * kMs, 2));
  finder.take(held(53 * kMs, 2 * kMs));
  finder.take(held(54 * kMs, 3 * kMs));  // another thread, for 2 ms at the same time
  finder.take(mark(kEnd, 60 * kMs, 2));
  CHECK((held_of(finder) == Durations{2 * kMs, 3 * kMs}));
}

TEST(a_step_counts_from_what_was_asked_first_after_a_mark) {
  RequestFinder finder = after(
      {mark(kStep, 5 * kMs), launch(10 * kMs, 100 * kUs), launch(18 * kMs, 100 * kUs),
       mark(kStep, 19 * kMs), held(33 * kMs, 2 * kMs), launch(33 * kMs, 0), mark(kStep, 34 * kMs)});
  CHECK((durations_of(finder) == Durations{9 * kMs, 3 * kMs}));
  CHECK(finder.kind() == RequestKind::kStep);
}

TEST(requests_that_are_marked_win_and_may_overlap) {
  RequestFinder finder =
      after({launch(1 * kMs, 100 * kUs), launch(9 * kMs, 100 * kUs), mark(kBegin, 10 * kMs, 1),
             mark(kBegin, 11 * kMs, 2), launch(12 * kMs, 100 * kUs), mark(kStep, 12 * kMs),
             mark(kEnd, 13 * kMs, 1), mark(kEnd, 15 * kMs, 2), mark(kEnd, 16 * kMs, 2)});
  finder.rest(30 * kMs);
  CHECK((durations_of(finder) == Durations{3 * kMs, 4 * kMs}));
  CHECK(finder.kind() == RequestKind::kMarked);
  CHECK(finder.take_most_open() == 2);
  finder.take(mark(kBegin, 31 * kMs, 3));
  CHECK(finder.take_most_open() == 1);
  finder.take(mark(kEnd, 32 * kMs, 3));
  finder.take(mark(kBegin, 33 * kMs, 4));
  CHECK(finder.take_most_open() == 1);
}

TEST(each_marked_request_has_the_objective_that_its_own_mark_says) {
  constexpr uint64_t kMost = RequestFinder::kMostObjectiveNs;
  RequestFinder finder =
      after({mark(kBegin, 10 * kMs, 1, 50 * kMs), mark(kBegin, 11 * kMs, 2, kMost),
             mark(kBegin, 12 * kMs, 3, kMost + 1), mark(kBegin, 13 * kMs, 4, UINT64_MAX),
             mark(kBegin, 14 * kMs, 5), mark(kEnd, 20 * kMs, 2, 7), mark(kEnd, 21 * kMs, 1),
             mark(kEnd, 22 * kMs, 3), mark(kEnd, 23 * kMs, 4), mark(kEnd, 24 * kMs, 5)});
  Durations objectives;
  for (const EndedRequest& ended : finder.take_ended()) objectives.push_back(ended.objective_ns);
  CHECK((objectives == Durations{kMost, 50 * kMs, 0, 0, 0}));
}

TEST(the_end_of_one_that_began_before_anybody_looked_tells_that_they_are_marked) {
  RequestFinder finder = after({launch(1 * kMs, 100 * kUs), launch(9 * kMs, 100 * kUs),
                                mark(kEnd, 10 * kMs, 1), launch(20 * kMs, 100 * kUs)});
  finder.rest(30 * kMs);
  CHECK(durations_of(finder).empty());
  CHECK(finder.kind() == RequestKind::kMarked);
}

TEST(over_lost_records_nothing_is_measured) {
  RequestFinder finder = after({launch(10 * kMs, 100 * kUs), mark(kBegin, 10 * kMs, 1)});
  finder.lose();
  finder.take(mark(kEnd, 20 * kMs, 1));
  CHECK(durations_of(finder).empty());
}

TEST(what_is_left_of_a_burst_after_lost_records_is_no_burst) {
  RequestFinder finder = after({launch(10 * kMs, 95 * kMs)});
  finder.lose();
  finder.take(launch(105 * kMs, 2 * kMs));
  finder.take(launch(106 * kMs, 4 * kMs));  // behind the other one: until 111 ms
  finder.rest(111 * kMs + kIdleNs);
  CHECK(durations_of(finder).empty());

  finder.take(launch(150 * kMs, 7 * kMs));
  finder.rest(200 * kMs);
  CHECK(durations_of(finder) == Durations{7 * kMs});
}

TEST(the_first_burst_after_a_rest_counts_although_records_were_lost_before) {
  RequestFinder finder = after({launch(10 * kMs, 95 * kMs)});
  finder.lose();
  finder.take(launch(105 * kMs, 2 * kMs));
  finder.take(launch(120 * kMs, 3 * kMs));  // after 13 ms of rest
  finder.rest(200 * kMs);
  CHECK(durations_of(finder) == Durations{3 * kMs});
}

TEST(what_is_left_of_a_step_after_lost_records_is_no_step) {
  RequestFinder finder = after({mark(kStep, 5 * kMs), launch(10 * kMs, 95 * kMs)});
  finder.lose();
  finder.take(launch(105 * kMs, 1 * kMs));
  finder.take(launch(108 * kMs, 1 * kMs));  // a rest does not end a step
  finder.take(mark(kStep, 110 * kMs));
  CHECK(durations_of(finder).empty());

  finder.take(launch(120 * kMs, 1 * kMs));
  finder.take(mark(kStep, 150 * kMs));
  CHECK(durations_of(finder) == Durations{30 * kMs});
}

TEST(what_nobody_takes_is_bounded) {
  RequestFinder finder(kIdleNs);
  for (uint64_t i = 1; i <= 3 * RequestFinder::kMostKept; ++i) {
    finder.take(mark(kBegin, i * kMs, i));  // most of them never end
    if (i % 2 == 0) finder.take(mark(kEnd, i * kMs + i, i));
  }
  const Durations durations = durations_of(finder);
  CHECK_EQ(durations.size(), RequestFinder::kMostKept);
  CHECK_EQ(durations.back(), 3 * RequestFinder::kMostKept);
  CHECK(durations_of(finder).empty());
}
