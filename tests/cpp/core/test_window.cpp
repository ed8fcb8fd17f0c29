#include "daemon/window.h"

#include <algorithm>
#include <random>
#include <vector>

#include "check.h"
#include "dag/records.h"

using namespace tandem::daemon;
namespace shm = tandem::shm;

namespace {

shm::Record launch(uint64_t at_ns) {
  shm::Record record{};
  record.ticks = at_ns;
  record.kind = static_cast<uint8_t>(shm::RecordKind::kLaunch);
  return record;
}

// Launches at these times, then looks.
void round(WindowTaker& taker, std::initializer_list<uint64_t> launches, uint64_t iterations,
           uint64_t last_end_ns, uint64_t now_ns, uint64_t usual_ns = 0) {
  for (const uint64_t at_ns : launches) {
    const shm::Record record = launch(at_ns);
    taker.take(&record, 1, 0);
  }
  taker.look(iterations, last_end_ns, usual_ns, now_ns);
}

}  // namespace

TEST(nothing_is_kept_until_somebody_asks) {
  WindowTaker taker;
  round(taker, {10, 20}, 1, 15, 30);
  CHECK(!taker.wanted());
  CHECK(taker.newest() == nullptr);
}

TEST(a_window_is_one_iteration_from_end_to_end) {
  WindowTaker taker;
  taker.want(100);
  round(taker, {110, 120}, 7, 90, 130);
  round(taker, {140, 150, 160}, 8, 145, 170);  // the first end
  CHECK(taker.newest() == nullptr);
  round(taker, {180, 190}, 8, 145, 200);
  round(taker, {210, 220}, 9, 215, 230);  // and the next

  const auto window = taker.newest();

  CHECK_EQ(window->begin_ns, 145u);
  CHECK_EQ(window->end_ns, 215u);
  CHECK_EQ(window->first_iteration, 8u);
  CHECK_EQ(window->iterations, 1u);
  CHECK_EQ(window->records.size(), 5u);
  CHECK_EQ(window->records.front().ticks, 150u);
  CHECK_EQ(window->records.back().ticks, 210u);
  CHECK(!taker.wanted());
}

TEST(an_iteration_with_times_on_other_sms_is_passed_over) {
  WindowTaker taker;
  const auto stale = [&](uint64_t at_ns) {
    shm::Record record = launch(at_ns);
    record.flags |= shm::kRecordStale;
    taker.take(&record, 1, 0);
  };
  taker.want(100);
  round(taker, {110}, 7, 90, 120);
  stale(120);  // before the window
  round(taker, {150}, 8, 145, 170);
  stale(180);
  round(taker, {220}, 9, 215, 230);  // the first end; the launch after it belongs to the next one
  CHECK(taker.newest() == nullptr);
  round(taker, {240, 270}, 10, 260, 280);

  const auto window = taker.newest();
  CHECK_EQ(window->begin_ns, 215u);
  CHECK_EQ(window->end_ns, 260u);
  CHECK_EQ(window->first_iteration, 9u);
  CHECK_EQ(window->iterations, 1u);
  CHECK_EQ(window->records.size(), 2u);

  taker.want(300);
  round(taker, {310}, 10, 260, 320);
  round(taker, {340}, 11, 330, 350);
  stale(360);
  const uint64_t late_ns = 300 + WindowTaker::kLongestNs;
  round(taker, {}, 12, late_ns, late_ns);  // no other iteration came in time
  CHECK_EQ(taker.newest()->iterations, 1u);
}

TEST(launches_that_are_never_measured_hold_a_window_up_for_some_iterations_only) {
  constexpr uint64_t kLengthNs = WindowTaker::kFruitlessNs / WindowTaker::kFruitless;
  const auto ended_after = [](uint64_t stale_at_first, uint64_t stale_at_last) {
    WindowTaker taker;
    taker.want(0);
    uint64_t iterations = 0;
    for (; !taker.newest(); ++iterations) {
      const uint64_t begin_ns = iterations * kLengthNs;
      const uint64_t measured = std::min(iterations, stale_at_first - stale_at_last);
      for (uint64_t i = 0; i < stale_at_first; ++i) {
        shm::Record record = launch(begin_ns + 1 + i);
        if (i >= measured) record.flags |= shm::kRecordStale;
        taker.take(&record, 1, 0);
      }
      taker.look(iterations, begin_ns, kLengthNs, begin_ns + 100);
      CHECK(begin_ns < WindowTaker::kLongestNs);
    }
    CHECK_EQ(taker.newest()->iterations, 1u);
    return iterations;
  };

  CHECK(ended_after(50, 0) >= 50);  // each time, one more is known
  CHECK(ended_after(50, 1) >= 49 + WindowTaker::kFruitless);
  CHECK(ended_after(50, 1) <= 53 + WindowTaker::kFruitless);
}

TEST(a_window_waits_for_some_of_the_usual_iterations_however_long_they_are) {
  constexpr uint64_t kLengthNs = 10'000'000'000;
  WindowTaker taker;
  taker.want(0);
  round(taker, {1}, 7, 0, 1, kLengthNs);
  round(taker, {2}, 7, 0, WindowTaker::kLongestNs, kLengthNs);
  round(taker, {kLengthNs + 1}, 8, kLengthNs, kLengthNs + 2, kLengthNs);
  round(taker, {}, 9, 2 * kLengthNs, 2 * kLengthNs, kLengthNs);
  CHECK_EQ(taker.newest()->begin_ns, kLengthNs);
  CHECK_EQ(taker.newest()->iterations, 1u);

  taker.want(0);
  round(taker, {1}, 7, 0, 1, UINT64_MAX);
  round(taker, {2}, 7, 0, WindowTaker::kMostNs, UINT64_MAX);
  CHECK_EQ(taker.newest()->iterations, 0u);
}

TEST(a_window_says_how_long_the_process_was_busy_in_it_and_how_long_beside_others) {
  WindowTaker taker;
  taker.charge(0, 90, true);  // nobody asked yet
  taker.want(100);
  taker.charge(100, 130, true);
  round(taker, {110}, 7, 90, 130);
  taker.charge(130, 150, true);  // continues into the window
  round(taker, {140}, 8, 145, 170);
  taker.charge(170, 180, false);
  taker.charge(180, 200, true);
  round(taker, {190}, 8, 145, 200);
  taker.charge(210, 230, true);  // continues beyond the window
  round(taker, {220}, 9, 215, 230);

  const uint64_t shared_ns = (150 - 145) + (200 - 180) + (215 - 210);
  CHECK_EQ(taker.newest()->shared_ns, shared_ns);
  CHECK_EQ(taker.newest()->busy_ns, shared_ns + 10);

  taker.want(300);
  round(taker, {310}, 9, 215, 320);
  round(taker, {340}, 10, 330, 350);
  round(taker, {370}, 11, 360, 370);
  CHECK_EQ(taker.newest()->busy_ns, 0u);
}

TEST(of_many_stretches_no_shared_time_is_lost) {
  WindowTaker taker;
  taker.want(0);
  round(taker, {}, 1, 0, 0);
  round(taker, {}, 2, 1, 2);
  for (uint64_t at_ns = 10; at_ns < 100'000; at_ns += 10) taker.charge(at_ns, at_ns + 4, true);
  round(taker, {}, 3, 100'000, 100'000);

  const uint64_t shared_ns = taker.newest()->shared_ns;
  CHECK(shared_ns >= 9'999u * 4);
  CHECK(shared_ns <= 99'994u);
}

TEST(what_came_before_the_window_leaves_room_for_what_is_in_it) {
  WindowTaker taker;
  taker.want(0);
  round(taker, {}, 1, 0, 0);
  for (uint64_t at_ns = 10; at_ns < 100'000; at_ns += 10) taker.charge(at_ns, at_ns + 4, true);
  round(taker, {}, 2, 100'000, 100'000);
  taker.charge(100'000, 100'100, false);
  round(taker, {}, 3, 100'100, 100'100);

  CHECK_EQ(taker.newest()->busy_ns, 100u);
  CHECK_EQ(taker.newest()->shared_ns, 0u);
}

// Rounds bring the work of one thread after that of another, and waits that began long before.
TEST(records_are_in_the_order_that_sorting_them_at_once_gives) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    WindowTaker taker;
    taker.want(0);
    std::vector<shm::Record> all;
    uint64_t now_ns = 1'000;
    for (int step = 0; step < 40; ++step, now_ns += 100) {
      for (uint32_t thread = 0; thread < 3; ++thread) {
        std::vector<shm::Record> run;
        for (uint64_t at_ns = now_ns; at_ns < now_ns + 100; at_ns += 1 + random() % 40) {
          run.push_back(launch(at_ns));
          run.back().thread = thread;
          run.back().object = all.size() + run.size();
          if (random() % 4) continue;
          run.back().kind = static_cast<uint8_t>(shm::RecordKind::kSync);
          run.back().duration_ns = random() % 300;
        }
        taker.take(run.data(), run.size(), 0);
        all.insert(all.end(), run.begin(), run.end());
      }
      taker.look(0, 0, 0, now_ns);
    }
    taker.look(0, 0, 0, WindowTaker::kLongestNs);

    std::stable_sort(all.begin(), all.end(), [](const shm::Record& left, const shm::Record& right) {
      return tandem::dag::effect_at(left) < tandem::dag::effect_at(right);
    });
    const auto window = taker.newest();
    CHECK_EQ(window->records.size(), all.size());
    for (size_t i = 0; i < all.size(); ++i) CHECK_EQ(window->records[i].object, all[i].object);
    CHECK(window->records.capacity() <= 2 * all.size());
  }
}

// On a virtual clock an iteration and the wait before it end at the same time.
TEST(a_wait_is_of_the_iteration_that_ends_with_it) {
  shm::Record wait{};
  wait.kind = static_cast<uint8_t>(shm::RecordKind::kSync);
  wait.duration_ns = 40;
  WindowTaker taker;
  taker.want(0);
  taker.look(1, 0, 0, 1);
  for (const uint64_t at_ns : {50u, 100u}) {
    round(taker, {at_ns - 40, at_ns}, at_ns / 50, at_ns - 50, at_ns);
    wait.ticks = at_ns;
    taker.take(&wait, 1, 0);
  }
  taker.look(3, 100, 0, 100);

  const auto window = taker.newest();

  CHECK_EQ(window->begin_ns, 50u);
  CHECK_EQ(window->records.size(), 3u);
  CHECK_EQ(window->records.front().ticks, 50u);  // the launch, but not the wait that ended then
  CHECK_EQ(window->records.back().ticks, 100u);
  CHECK_EQ(window->records.back().duration_ns, 40u);
}

TEST(an_iteration_is_none_that_ended_when_the_window_began) {
  WindowTaker taker;
  taker.want(0);
  taker.look(1, 0, 0, 1);
  round(taker, {10}, 2, 20, 20);  // a third end at 20 was read but not yet counted
  round(taker, {30}, 3, 20, 30);
  CHECK(taker.newest() == nullptr);
  round(taker, {50}, 4, 40, 50);
  CHECK_EQ(taker.newest()->begin_ns, 20u);
  CHECK_EQ(taker.newest()->end_ns, 40u);
  CHECK_EQ(taker.newest()->first_iteration, 3u);
  CHECK_EQ(taker.newest()->iterations, 1u);
}

TEST(where_no_iteration_ends_there_is_what_there_was) {
  WindowTaker taker;
  taker.want(100);
  round(taker, {110}, 0, 0, 200);
  round(taker, {300}, 0, 0, 100 + WindowTaker::kLongestNs);
  CHECK_EQ(taker.newest()->iterations, 0u);
  CHECK_EQ(taker.newest()->records.size(), 2u);
}

TEST(an_iteration_that_is_too_long_is_cut_and_says_so) {
  WindowTaker taker;
  taker.want(0);
  for (uint64_t i = 0; i <= WindowTaker::kMaxRecords; ++i) round(taker, {i}, 0, 0, i);
  CHECK(taker.newest()->is_cut);
  CHECK_EQ(taker.newest()->records.size(), WindowTaker::kMaxRecords);
}

TEST(losses_before_the_iteration_began_do_not_count) {
  WindowTaker taker;
  taker.want(0);
  taker.look(1, 0, 0, 1);
  const shm::Record record = launch(5);
  taker.take(&record, 1, 3);
  taker.look(2, 10, 0, 11);
  taker.take(&record, 1, 2);
  taker.look(3, 20, 0, 21);
  CHECK_EQ(taker.newest()->lost, 2u);
}

TEST(an_end_from_before_it_was_asked_for_that_is_counted_late_begins_no_window) {
  WindowTaker taker;
  taker.want_sampled(10);
  round(taker, {5}, 6, 0, 30);
  round(taker, {35}, 7, 15, 40);  // read at the first look or before
  round(taker, {45, 55}, 8, 50, 60);
  CHECK(taker.newest() == nullptr);
  round(taker, {65}, 9, 70, 80);

  CHECK_EQ(taker.newest()->begin_ns, 50u);
  CHECK_EQ(taker.newest()->iterations, 1u);
  CHECK_EQ(taker.newest()->records.size(), 2u);
}

TEST(a_sampled_window_is_had_once_though_others_follow_it) {
  WindowTaker taker;
  taker.want_sampled(0);
  CHECK(taker.wants_sampled());
  taker.look(1, 0, 0, 1);
  taker.look(2, 10, 0, 11);
  taker.look(3, 20, 0, 21);
  CHECK(!taker.wants_sampled());
  taker.want(30);
  CHECK(!taker.wants_sampled());
  taker.look(4, 40, 0, 31);
  taker.look(5, 50, 0, 51);
  taker.look(6, 60, 0, 61);

  CHECK_EQ(taker.newest()->end_ns, 60u);
  const auto sampled = taker.take_sampled();
  CHECK_EQ(sampled->end_ns, 20u);
  CHECK_EQ(sampled->begin_ns, 10u);
  CHECK(taker.take_sampled() == nullptr);
}

TEST(a_window_that_is_begun_anew_has_nothing_from_before) {
  WindowTaker taker;
  taker.want(0);
  taker.look(1, 0, 0, 1);
  round(taker, {15}, 2, 10, 16);
  taker.want_sampled(17);
  round(taker, {18}, 3, 20, 21);
  CHECK(taker.newest() == nullptr);
  round(taker, {25}, 4, 30, 31);
  CHECK(taker.newest() == nullptr);
  round(taker, {35}, 5, 40, 41);
  CHECK_EQ(taker.newest()->begin_ns, 30u);
  CHECK_EQ(taker.newest()->records.size(), 1u);
}

TEST(the_newest_window_stays_while_another_is_taken) {
  WindowTaker taker;
  taker.want(0);
  taker.look(1, 0, 0, 1);
  taker.look(2, 10, 0, 11);
  taker.look(3, 20, 0, 21);
  const auto first = taker.newest();
  taker.want(30);
  CHECK(taker.newest() == first);
}
