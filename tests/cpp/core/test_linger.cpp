#include "linger.h"

#include "check.h"

using namespace tandem;

namespace {

constexpr uint64_t kBase = 300'000;
constexpr uint64_t kLimit = 2'000'000;

void add(GapHistogram* gaps, uint64_t gap_ns, int times) {
  for (int i = 0; i < times; ++i) gaps->add(gap_ns);
}

}  // namespace

TEST(without_enough_gaps_the_base_is_kept) {
  GapHistogram gaps;
  add(&gaps, 400'000, 31);
  CHECK_EQ(gaps.linger_ns(kBase, kLimit), kBase);
  add(&gaps, 400'000, 1);
  CHECK(gaps.linger_ns(kBase, kLimit) >= 400'000);
}

TEST(pauses_between_queued_requests_are_covered_and_no_more_than_they) {
  GapHistogram gaps;
  for (int round = 0; round < 40; ++round) {
    gaps.add(430'000);          // one in four requests had another queued behind it
    add(&gaps, 25'000'000, 3);  // quiet followed the others
  }
  const uint64_t linger = gaps.linger_ns(kBase, kLimit);
  CHECK(linger >= 430'000);
  CHECK(linger <= 600'000);
}

TEST(requests_that_come_at_random_are_not_waited_for) {
  GapHistogram gaps;
  for (uint64_t i = 1; i <= 100; ++i) gaps.add(i * 500'000);  // evenly spread up to 50 ms
  CHECK_EQ(gaps.linger_ns(kBase, kLimit), kBase);
}

TEST(a_closed_loop_is_covered_up_to_the_limit) {
  GapHistogram gaps;
  add(&gaps, 1'500'000, 100);
  const uint64_t linger = gaps.linger_ns(kBase, kLimit);
  CHECK(linger >= 1'500'000 && linger <= kLimit);
  CHECK_EQ(gaps.linger_ns(kBase, 1'000'000), kBase);  // no waiting for what cannot be covered
  CHECK_EQ(gaps.linger_ns(kBase, 0), kBase);          // tuning is off
}

TEST(what_was_long_ago_is_forgotten) {
  GapHistogram gaps;
  add(&gaps, 1'500'000, 500);
  add(&gaps, 50'000, 5000);
  CHECK_EQ(gaps.linger_ns(kBase, kLimit), kBase);
}

TEST(gaps_of_any_length_are_taken) {
  GapHistogram gaps;
  add(&gaps, 0, 40);
  add(&gaps, UINT64_MAX, 40);
  CHECK_EQ(gaps.linger_ns(0, UINT64_MAX) >= 1, true);
  CHECK_EQ(gaps.linger_ns(kBase, kLimit), kBase);
}
