// Durations derived from declared figures: occupancy, rounds of blocks, bandwidth shares.
#include <cmath>

#include "check.h"
#include "profile.h"
#include "roofline.h"

using namespace tandem::softgpu;

namespace {

DeviceInfo tiny() { return device_info(*find_profile("tiny"), 0); }
KernelShape kernel(uint64_t blocks, uint32_t threads, uint32_t fitting = 0) {
  KernelShape shape;
  shape.blocks = blocks;
  shape.block_threads = threads;
  shape.fitting_blocks = fitting;
  return shape;
}
bool near(double a, double b) { return std::fabs(a - b) < 1e-6 * std::fabs(b); }

}  // namespace

TEST(blocks_per_sm_is_bounded_by_threads_and_by_the_device) {
  CHECK_EQ(blocks_per_sm(tiny(), kernel(1, 256)), 8u);
  CHECK_EQ(blocks_per_sm(tiny(), kernel(1, 32)), 32u);
  CHECK_EQ(blocks_per_sm(tiny(), kernel(1, 0)), 32u);
  CHECK_EQ(blocks_per_sm(tiny(), kernel(1, 4096)), 1u);
  CHECK_EQ(blocks_per_sm(tiny(), kernel(1, 256, 3)), 3u);
  CHECK_EQ(blocks_per_sm(tiny(), kernel(1, 256, 20)), 8u);
}

TEST(a_kernel_demands_the_sms_its_blocks_fill) {
  CHECK_EQ(sm_demand(tiny(), kernel(1, 256)), 1u);
  CHECK_EQ(sm_demand(tiny(), kernel(9, 256)), 2u);
  CHECK_EQ(sm_demand(tiny(), kernel(64, 256)), 8u);
  CHECK_EQ(sm_demand(tiny(), kernel(UINT64_MAX, 256)), 8u);
  CHECK_EQ(sm_demand(tiny(), kernel(0, 256)), 1u);
}

TEST(compute_time_counts_whole_rounds_of_blocks) {
  const auto time_ns = [](uint64_t blocks, uint32_t sms) {
    return compute_ns(tiny(), {blocks, 2048, 1000, 0}, sms);
  };
  CHECK(near(time_ns(8, 8), 1000));
  CHECK(near(time_ns(9, 8), 2000));
  CHECK(near(time_ns(16, 8), 2000));
  CHECK(near(time_ns(8, 3), 3000));
}

TEST(bandwidth_goes_to_those_who_can_use_it_by_their_sms) {
  std::vector<BandwidthClaim> claims = {
      {1000, 10'000, 4, 0},  // wants 0.1 byte/ns and gets it
      {1000, 0, 1, 0},       // these two share 0.9 in the ratio 1:2
      {1000, 0, 2, 0},
      {0, 50, 1, 0},  // moves nothing
  };
  share_bandwidth(1e9, claims);
  CHECK(near(claims[0].duration_ns, 10'000));
  CHECK(near(claims[1].duration_ns, 1000 / 0.3));
  CHECK(near(claims[2].duration_ns, 1000 / 0.6));
  CHECK(near(claims[3].duration_ns, 50));
}

TEST(every_profile_names_itself_a_software_gpu) {
  for (const char* name : {"h200", "a100", "rtx4090", "tiny"}) {
    const DeviceInfo info = device_info(*find_profile(name), 0);
    CHECK(std::strncmp(info.name, "Tandem Software GPU", 19) == 0);
    CHECK(info.sm_count > 0 && info.memory_bytes > 0 && info.copy_bytes_per_s > 0);
  }
  CHECK(find_profile("h100") == nullptr);
}
