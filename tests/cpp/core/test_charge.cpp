#include "daemon/charge.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "check.h"

using tandem::daemon::charge;
using tandem::daemon::Claim;

TEST(a_group_alone_on_its_gpu_pays_for_the_whole_interval) {
  Claim claims[] = {{0, 5}};

  charge(1000, claims, 1);

  CHECK_EQ(claims[0].exclusive_ns, 1000u);
  CHECK_EQ(claims[0].shared_ns, 0u);
}

TEST(groups_on_one_gpu_split_the_interval_as_shared) {
  Claim claims[] = {{0, 1}, {0, 2}};

  charge(1001, claims, 2);

  CHECK_EQ(claims[0].shared_ns, 501u);
  CHECK_EQ(claims[1].shared_ns, 500u);
  CHECK_EQ(claims[0].exclusive_ns + claims[1].exclusive_ns, 0u);
}

TEST(processes_of_one_group_split_what_the_group_pays) {
  Claim claims[] = {{0, 1}, {0, 1}, {0, 2}};

  charge(1000, claims, 3);

  CHECK_EQ(claims[0].shared_ns, 250u);
  CHECK_EQ(claims[1].shared_ns, 250u);
  CHECK_EQ(claims[2].shared_ns, 500u);
}

TEST(gpus_do_not_share_with_each_other) {
  Claim claims[] = {{0, 1}, {1, 1}};

  charge(1000, claims, 2);

  CHECK_EQ(claims[0].exclusive_ns, 1000u);
  CHECK_EQ(claims[1].exclusive_ns, 1000u);
}

TEST(an_interval_is_split_by_the_sms_that_each_group_takes) {
  Claim claims[] = {{0, 1, 4, 132}, {0, 2, 128, 132}};

  charge(1320, claims, 2);

  CHECK_EQ(claims[0].shared_ns, 40u);
  CHECK_EQ(claims[1].shared_ns, 1280u);
  CHECK_EQ(claims[0].even_ns, 660u);
  CHECK_EQ(claims[1].even_ns, 660u);
}

TEST(a_group_counts_for_its_busy_processes_up_to_what_it_may_use) {
  Claim claims[] = {{0, 1, 20, 30}, {0, 1, 20, 30}, {0, 2, 10, 100}};

  charge(400, claims, 3);

  CHECK_EQ(claims[0].shared_ns, 150u);
  CHECK_EQ(claims[1].shared_ns, 150u);
  CHECK_EQ(claims[2].shared_ns, 100u);
}

TEST(where_one_is_not_told_of_the_interval_is_split_evenly) {
  Claim claims[] = {{0, 1, 4, 132}, {0, 2}, {1, 1, 4, 132}, {1, 2, 128, 132}};

  charge(1320, claims, 4);

  CHECK_EQ(claims[0].shared_ns, 660u);
  CHECK_EQ(claims[1].shared_ns, 660u);
  CHECK_EQ(claims[2].shared_ns, 40u);  // on another GPU
}

TEST(who_is_alone_pays_for_all_of_it_whatever_it_takes) {
  Claim claims[] = {{0, 1, 1, 132}};

  charge(1000, claims, 1);

  CHECK_EQ(claims[0].exclusive_ns, 1000u);
  CHECK_EQ(claims[0].even_ns, 0u);
}

namespace {

// What a group is charged, to compare to the nanosecond with a division made here.
struct Told {
  uint64_t sms = 0;
  uint64_t most_sms = 1;
  uint64_t shared_ns = 0;
  uint64_t even_ns = 0;
  uint64_t exclusive_ns = 0;
  uint64_t weight() const { return std::min(sms, most_sms); }
};

uint64_t distance(double one, uint64_t other) {
  return static_cast<uint64_t>(std::abs(one - static_cast<double>(other)));
}

void check_gpu(const std::map<int64_t, Told>& groups, uint64_t interval_ns, bool is_told) {
  uint64_t weights = 0;
  uint64_t paid_ns = 0;
  uint64_t evenly_ns = 0;
  for (const auto& [number, group] : groups) {
    weights += is_told ? group.weight() : 1;
    paid_ns += group.exclusive_ns + group.shared_ns;
    evenly_ns += group.exclusive_ns + group.even_ns;
  }
  CHECK_EQ(paid_ns, interval_ns);
  CHECK_EQ(evenly_ns, interval_ns);
  for (const auto& [number, group] : groups) {
    const double whole = static_cast<double>(interval_ns);
    const double heads = static_cast<double>(groups.size());
    const double weight = static_cast<double>(is_told ? group.weight() : 1);
    const double part = weight / static_cast<double>(weights);
    if (groups.size() == 1) {
      CHECK_EQ(group.exclusive_ns, interval_ns);
    } else {
      CHECK_EQ(group.exclusive_ns, 0u);
      CHECK(distance(whole * part, group.shared_ns) <= 1);
      CHECK(distance(whole / heads, group.even_ns) <= 1);
    }
  }
}

}  // namespace

TEST(every_nanosecond_is_charged_exactly_once_on_each_busy_gpu) {
  std::mt19937_64 random(42);
  for (int round = 0; round < 2000; ++round) {
    const uint64_t interval_ns = random() % 10'000'000;
    std::vector<Claim> claims(random() % 12);
    for (Claim& c : claims) {
      const auto sms = static_cast<uint32_t>(random() % 8 == 0 ? 0 : random() % 132 + 1);
      c = {static_cast<int>(random() % 3), static_cast<int64_t>(random() % 4), sms,
           static_cast<uint32_t>(random() % 132 + 1)};
    }
    std::sort(claims.begin(), claims.end(), [](const Claim& a, const Claim& b) {
      return std::make_tuple(a.gpu, a.group) < std::make_tuple(b.gpu, b.group);
    });

    charge(interval_ns, claims.data(), claims.size());

    std::map<int, std::map<int64_t, Told>> by_gpu;
    std::map<int, bool> is_told;
    for (const Claim& c : claims) {
      Told& group = by_gpu[c.gpu][c.group];
      group.sms += c.sms;
      group.most_sms = std::max<uint64_t>(group.most_sms, c.most_sms);
      group.exclusive_ns += c.exclusive_ns;
      group.shared_ns += c.shared_ns;
      group.even_ns += c.even_ns;
      is_told.try_emplace(c.gpu, true);
      is_told[c.gpu] &= c.sms != 0;
    }
    for (const auto& [gpu, groups] : by_gpu) check_gpu(groups, interval_ns, is_told[gpu]);
  }
}
