#include "daemon/charge.h"

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "check.h"

using tandem::daemon::charge;
using tandem::daemon::Claim;

TEST(a_group_alone_on_its_gpu_pays_for_the_whole_interval) {
  Claim claims[] = {{0, 5, 0, 0}};

  charge(1000, claims, 1);

  CHECK_EQ(claims[0].exclusive_ns, 1000u);
  CHECK_EQ(claims[0].shared_ns, 0u);
}

TEST(groups_on_one_gpu_split_the_interval_as_shared) {
  Claim claims[] = {{0, 1, 0, 0}, {0, 2, 0, 0}};

  charge(1001, claims, 2);

  CHECK_EQ(claims[0].shared_ns, 501u);
  CHECK_EQ(claims[1].shared_ns, 500u);
  CHECK_EQ(claims[0].exclusive_ns + claims[1].exclusive_ns, 0u);
}

TEST(processes_of_one_group_split_what_the_group_pays) {
  Claim claims[] = {{0, 1, 0, 0}, {0, 1, 0, 0}, {0, 2, 0, 0}};

  charge(1000, claims, 3);

  CHECK_EQ(claims[0].shared_ns, 250u);
  CHECK_EQ(claims[1].shared_ns, 250u);
  CHECK_EQ(claims[2].shared_ns, 500u);
}

TEST(gpus_do_not_share_with_each_other) {
  Claim claims[] = {{0, 1, 0, 0}, {1, 1, 0, 0}};

  charge(1000, claims, 2);

  CHECK_EQ(claims[0].exclusive_ns, 1000u);
  CHECK_EQ(claims[1].exclusive_ns, 1000u);
}

TEST(every_nanosecond_is_charged_exactly_once_on_each_busy_gpu) {
  std::mt19937_64 random(42);
  for (int round = 0; round < 2000; ++round) {
    const uint64_t interval_ns = random() % 10'000'000;
    std::vector<Claim> claims(random() % 12);
    for (Claim& c : claims) {
      c = {static_cast<int>(random() % 3), static_cast<int64_t>(random() % 4), 0, 0};
    }
    std::sort(claims.begin(), claims.end(), [](const Claim& a, const Claim& b) {
      return std::make_tuple(a.gpu, a.group) < std::make_tuple(b.gpu, b.group);
    });

    charge(interval_ns, claims.data(), claims.size());

    std::map<int, uint64_t> by_gpu;
    std::map<int, std::map<int64_t, uint64_t>> by_group;
    for (const Claim& c : claims) {
      by_gpu[c.gpu] += c.exclusive_ns + c.shared_ns;
      by_group[c.gpu][c.group] += c.exclusive_ns + c.shared_ns;
    }
    for (const Claim& c : claims) {
      CHECK_EQ(by_gpu[c.gpu], interval_ns);
      const auto& groups = by_group[c.gpu];
      CHECK_EQ(c.exclusive_ns != 0 && groups.size() > 1, false);
      CHECK_EQ(c.shared_ns != 0 && groups.size() == 1, false);
      CHECK(groups.at(c.group) <= interval_ns / groups.size() + 1);
    }
  }
}
