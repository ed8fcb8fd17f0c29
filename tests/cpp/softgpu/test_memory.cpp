// The ledger: which client holds how much of the device's memory.
#include "check.h"
#include "simulation.h"

using namespace tandem::softgpu;

namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

const MemReply& reserve(Simulation* s, uint32_t client, uint64_t bytes,
                        MemKind kind = MemKind::kLinear) {
  s->send(client, Type::kMemReserve, MemReserve{{}, 9, bytes, 0, static_cast<uint32_t>(kind)});
  return s->peers[client].memory.back();
}
uint64_t free_bytes(Simulation* s, uint32_t client) {
  s->send(client, Type::kMemInfo, MemInfo{{}, 7, 0, 0});
  CHECK_EQ(s->peers[client].infos.back().request, 7u);
  return s->peers[client].infos.back().free_bytes;
}

}  // namespace

TEST(memory_is_refused_when_the_device_is_full) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  CHECK_EQ(reserve(&s, a, kGiB - 100).status, +kSuccess);
  CHECK_EQ(reserve(&s, b, 101).status, +kOutOfMemory);
  CHECK_EQ(reserve(&s, b, 101).allocation, 0u);
  CHECK_EQ(reserve(&s, b, 100).status, +kSuccess);
  CHECK_EQ(free_bytes(&s, a), 0u);
}

TEST(sizes_near_the_end_of_64_bits_do_not_wrap) {
  Simulation s;
  const uint32_t a = s.join();
  CHECK_EQ(reserve(&s, a, 100).status, +kSuccess);
  CHECK_EQ(reserve(&s, a, UINT64_MAX).status, +kOutOfMemory);
  CHECK_EQ(reserve(&s, a, UINT64_MAX - 99).status, +kOutOfMemory);
  CHECK_EQ(reserve(&s, a, 0).status, +kInvalidValue);
  CHECK_EQ(free_bytes(&s, a), kGiB - 100);
}

TEST(only_the_holder_can_release_and_only_once) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t allocation = reserve(&s, a, 4096).allocation;
  s.send(b, Type::kMemRelease, MemRelease{{}, allocation});
  CHECK_EQ(free_bytes(&s, b), kGiB - 4096);
  s.send(a, Type::kMemRelease, MemRelease{{}, allocation});
  s.send(a, Type::kMemRelease, MemRelease{{}, allocation});
  CHECK_EQ(free_bytes(&s, a), kGiB);
}

TEST(a_closed_connection_frees_everything) {
  Simulation s;
  const uint32_t a = s.join(1), b = s.join(2);
  for (int i = 1; i <= 10; ++i) CHECK_EQ(reserve(&s, a, 1000).status, +kSuccess);
  CHECK_EQ(reserve(&s, b, 1).status, +kSuccess);
  s.close(a);
  CHECK_EQ(free_bytes(&s, b), kGiB - 1);
}

TEST(a_context_costs_what_the_profile_says) {
  Simulation s;
  const uint32_t a = s.join();
  CHECK_EQ(reserve(&s, a, 1, MemKind::kContext).status, +kSuccess);
  CHECK_EQ(free_bytes(&s, a), kGiB - find_profile("tiny")->context_bytes);
}

TEST(the_nth_reservation_can_be_made_to_fail) {
  Settings settings = tiny_settings();
  CHECK(settings.faults.parse("oom@2").empty());
  Simulation s(settings);
  const uint32_t a = s.join();
  CHECK_EQ(reserve(&s, a, 1, MemKind::kContext).status, +kSuccess);
  CHECK_EQ(reserve(&s, a, 1).status, +kSuccess);
  CHECK_EQ(reserve(&s, a, 1).status, +kOutOfMemory);
  CHECK_EQ(reserve(&s, a, 1).status, +kSuccess);
}

TEST(status_tells_of_devices_and_clients) {
  Simulation s;
  const uint32_t a = s.join(4711);
  reserve(&s, a, 1234);
  const uint32_t q = s.join(1, kQueryOnly);
  s.send(q, Type::kQuery, Query{{}, 5, 0, 0});
  s.send(q, Type::kQuery, Query{{}, 6, 1, 0});
  const std::string& status = s.peers[q].texts.at(0);
  const std::string& nvml = s.peers[q].texts.at(1);
  CHECK(status.find("\"pid\":4711") != std::string::npos);
  CHECK(status.find("\"memory_bytes\":1234") != std::string::npos);
  CHECK(nvml.find("\"processes\":[{\"pid\":4711,\"used_bytes\":1234,\"compute_ratio\":0.0000}]") !=
        std::string::npos);
}

TEST(utilization_is_that_of_the_last_second_of_device_time) {
  Simulation s;
  const uint32_t a = s.join();
  s.submit(a, kernel(250'000'000));
  s.peers[a].deadline_ns = 1'000'000'000;
  s.peers[a].goes_idle = false;
  s.idle(a);
  s.idle(a);
  CHECK_EQ(s.peers[a].times.back(), 1'000'000'000u);
  const uint32_t q = s.join(1, kQueryOnly);
  s.send(q, Type::kQuery, Query{{}, 6, 1, 0});
  CHECK(s.peers[q].texts.at(0).find("\"gpu_utilization_ratio\":0.2500") != std::string::npos);
}
