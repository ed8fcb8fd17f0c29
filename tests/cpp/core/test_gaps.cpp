#include "dag/gaps.h"

#include <algorithm>
#include <random>
#include <vector>

#include "check.h"

using namespace tandem::dag;
namespace shm = tandem::shm;

namespace {

constexpr uint64_t kUs = 1000;
constexpr uint64_t kMs = 1'000'000;

shm::Record submission(uint64_t at_ns, uint64_t duration_ns, uint64_t stream = 16) {
  shm::Record record{};
  record.ticks = at_ns;
  record.kind = static_cast<uint8_t>(shm::RecordKind::kLaunch);
  record.stream = stream;
  record.duration_ns = duration_ns;
  record.value = uint64_t{1} << 32;  // context
  return record;
}

shm::Record wait_for(shm::SyncOf what, uint64_t at_ns, uint64_t waited_ns, uint64_t stream = 16) {
  shm::Record record = submission(at_ns, waited_ns, stream);
  record.kind = static_cast<uint8_t>(shm::RecordKind::kSync);
  record.value |= static_cast<uint64_t>(what);
  return record;
}

// Takes a kernel of 100 us before the first gap and after each one.
GapFinder found_in(const std::vector<uint64_t>& gaps_ns) {
  GapFinder finder;
  uint64_t now_ns = kMs;
  finder.take(submission(now_ns, 100 * kUs));
  for (const uint64_t gap_ns : gaps_ns) {
    now_ns += 100 * kUs + gap_ns;
    finder.take(submission(now_ns, 100 * kUs));
  }
  return finder;
}

// Computes by sorting what remains of the gaps that have lasted longer than `so_far_ns`.
uint64_t exact_ns(std::vector<uint64_t> gaps_ns, double part, uint64_t so_far_ns) {
  std::sort(gaps_ns.begin(), gaps_ns.end());
  const auto first = std::upper_bound(gaps_ns.begin(), gaps_ns.end(), so_far_ns);
  const auto longer = static_cast<double>(gaps_ns.end() - first);
  return *(first + static_cast<ptrdiff_t>(part * (longer - 1))) - so_far_ns;
}

// A bin is at most an eighth as wide as the values in it; the bin at `so_far_ns` is divided.
void check_near(uint64_t told_ns, uint64_t exact, uint64_t so_far_ns) {
  const uint64_t bin_ns = (exact + so_far_ns) / 8;
  if (told_ns + bin_ns < exact || told_ns > exact + bin_ns) {
    std::cerr << told_ns << " is not near " << exact << " after " << so_far_ns << "\n";
    std::_Exit(1);
  }
}

void check_against_exact(const std::vector<uint64_t>& gaps_ns, std::vector<uint64_t> so_fars_ns) {
  const GapFinder finder = found_in(gaps_ns);
  CHECK_EQ(finder.gaps().added(), gaps_ns.size());
  for (const uint64_t so_far_ns : so_fars_ns) {
    for (const double part : {0.5, 0.9}) {
      check_near(finder.gaps().remaining_ns(part, so_far_ns), exact_ns(gaps_ns, part, so_far_ns),
                 so_far_ns);
    }
  }
}

uint64_t p50_ns(const GapFinder& finder, uint64_t so_far_ns = 0) {
  return finder.gaps().remaining_ns(0.5, so_far_ns);
}

}  // namespace

TEST(constant_gaps_are_foreseen) {
  check_against_exact(std::vector<uint64_t>(100, 500 * kUs), {0, 100 * kUs, 300 * kUs, 400 * kUs});
}

TEST(a_gap_that_outlasted_the_short_ones_is_a_long_one) {
  std::vector<uint64_t> gaps_ns;
  for (int i = 0; i < 200; ++i) gaps_ns.push_back(i % 5 == 0 ? 80 * kMs : 200 * kUs);
  check_against_exact(gaps_ns, {0, 100 * kUs, 300 * kUs, 10 * kMs});
}

TEST(random_gaps_are_foreseen_as_well_as_by_sorting_them) {
  std::mt19937 random(1);
  std::exponential_distribution<double> draw(1.0 / 2e6);
  std::vector<uint64_t> gaps_ns;
  while (gaps_ns.size() < 250) {
    const auto gap_ns = static_cast<uint64_t>(draw(random));
    if (gap_ns >= GapFinder::kShortestNs) gaps_ns.push_back(gap_ns);
  }
  check_against_exact(gaps_ns, {0, 300 * kUs, kMs, 3 * kMs});
}

TEST(what_nobody_could_use_is_no_gap) {
  CHECK_EQ(found_in(std::vector<uint64_t>(100, 49 * kUs)).gaps().added(), 0u);
  CHECK_EQ(found_in(std::vector<uint64_t>(100, 50 * kUs)).gaps().added(), 100u);
}

TEST(nothing_is_claimed_of_few_gaps) {
  CHECK_EQ(p50_ns(found_in(std::vector<uint64_t>(31, kMs))), 0u);
  CHECK(p50_ns(found_in(std::vector<uint64_t>(32, kMs))) > 0);
  std::vector<uint64_t> gaps_ns(32, kMs);
  std::fill_n(gaps_ns.begin(), 7, 9 * kMs);
  CHECK_EQ(p50_ns(found_in(gaps_ns), 2 * kMs), 0u);  // seven lasted that long
  gaps_ns[7] = 9 * kMs;
  CHECK(p50_ns(found_in(gaps_ns), 2 * kMs) > 0);
}

TEST(what_was_long_ago_fades) {
  std::vector<uint64_t> gaps_ns(1000, 10 * kMs);
  gaps_ns.resize(1600, kMs);
  check_near(p50_ns(found_in(gaps_ns)), kMs, 0);
}

TEST(after_lost_records_nothing_is_claimed_until_there_are_enough_again) {
  GapFinder finder = found_in(std::vector<uint64_t>(100, kMs));
  finder.lose();
  CHECK_EQ(p50_ns(finder), 0u);
  uint64_t now_ns = 500 * kMs;
  for (int i = 0; i <= 32; ++i) {
    CHECK_EQ(p50_ns(finder), 0u);
    finder.take(submission(now_ns += 2 * kMs, kMs));
  }
  check_near(p50_ns(finder), kMs, 0);
}

TEST(a_gap_begins_when_the_last_stream_ends) {
  GapFinder finder;
  for (uint64_t i = 1; i <= 40; ++i) {
    const uint64_t now_ns = i * 10 * kMs;
    finder.take(submission(now_ns, 3 * kMs, 16));
    finder.take(submission(now_ns + kMs, 3 * kMs, 32));
    finder.take(submission(now_ns + kMs, 2 * kMs, 16));  // begins at 3 ms
  }
  CHECK_EQ(finder.gaps().added(), 39u);
  check_near(p50_ns(finder), 5 * kMs, 0);
}

TEST(a_wait_of_the_host_says_when_work_has_ended) {
  GapFinder finder;
  for (uint64_t i = 1; i <= 40; ++i) {
    const uint64_t now_ns = i * 10 * kMs;
    finder.take(submission(now_ns, i % 2 ? 100 * kUs : 90 * kMs));
    finder.take(wait_for(i % 4 ? shm::SyncOf::kStream : shm::SyncOf::kContext, now_ns + 4 * kMs,
                         3900 * kUs));
  }
  CHECK_EQ(finder.gaps().added(), 39u);
  check_near(p50_ns(finder), 6 * kMs, 0);
}

TEST(a_wait_for_nothing_does_not_move_the_end) {
  GapFinder finder;
  for (uint64_t i = 1; i <= 40; ++i) {
    finder.take(submission(i * 10 * kMs, kMs));
    finder.take(wait_for(shm::SyncOf::kContext, i * 10 * kMs + 5 * kMs, kUs));
  }
  check_near(p50_ns(finder), 9 * kMs, 0);
}

TEST(after_work_of_unknown_duration_there_is_no_gap_until_the_host_has_waited) {
  GapFinder finder;
  for (uint64_t i = 1; i <= 40; ++i) finder.take(submission(i * 10 * kMs, 0));
  CHECK_EQ(finder.gaps().added(), 0u);
  finder.take(wait_for(shm::SyncOf::kEvent, 450 * kMs, kMs));  // it is not known whose
  finder.take(submission(460 * kMs, kMs));
  CHECK_EQ(finder.gaps().added(), 0u);
  finder.take(wait_for(shm::SyncOf::kStream, 470 * kMs, kMs));
  finder.take(submission(480 * kMs, kMs));
  CHECK_EQ(finder.gaps().added(), 1u);
}

TEST(a_copy_that_the_host_waited_for_has_ended_when_it_is_recorded) {
  GapFinder finder;
  for (uint64_t i = 1; i <= 40; ++i) {
    shm::Record copy = submission(i * 10 * kMs, 2 * kMs);
    copy.kind = static_cast<uint8_t>(shm::RecordKind::kCopy);
    copy.flags = shm::kRecordHostWaited;
    finder.take(copy);
  }
  check_near(p50_ns(finder), 8 * kMs, 0);
}

TEST(any_bytes_are_taken) {
  std::mt19937_64 random(7);
  GapFinder finder;
  for (int i = 0; i < 20'000; ++i) {
    shm::Record record{};
    uint64_t words[sizeof(record) / sizeof(uint64_t)];
    for (uint64_t& word : words) word = random() >> (random() % 64);
    std::memcpy(&record, words, sizeof(record));
    finder.take(record);
    if (i % 5000 == 0) finder.lose();
  }
  for (const uint64_t so_far_ns : {uint64_t{0}, kMs, UINT64_MAX})
    CHECK(p50_ns(finder, so_far_ns) <= uint64_t{1} << 41);
}
