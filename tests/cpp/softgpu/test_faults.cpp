// Faults: what they are, when they happen, and what the device reports of them.
#include <algorithm>

#include "check.h"
#include "simulation.h"

using namespace tandem::softgpu;

namespace {

constexpr uint64_t kMs = 1'000'000;

Settings with_faults(const char* list) {
  Settings settings = tiny_settings();
  CHECK(settings.faults.parse(list).empty());
  return settings;
}

uint32_t watch(Simulation& s) {
  const uint32_t watcher = s.greet(1, kQueryOnly);
  s.peers[watcher].goes_idle = false;
  Query wish{};
  wish.what = 2;
  s.send(watcher, Type::kQuery, wish);
  return watcher;
}

std::string sequence(const char* list, const char* name, int count) {
  Faults faults;
  CHECK(faults.parse(list).empty());
  std::string text;
  for (int i = 0; i < count; ++i) text += faults.next_kernel(name) == FaultKind::kNone ? '.' : 'x';
  return text;
}

}  // namespace

TEST(an_uncorrectable_error_breaks_its_context_only) {
  Simulation s(with_faults("ecc-uncorrectable:k@1"));
  const uint32_t watcher = watch(s);
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t hit = s.submit(a, kernel(kMs)), later = s.submit(a, kernel(kMs));
  const uint64_t other = s.submit(b, kernel(kMs));
  s.run();
  CHECK_EQ(s.done(a, hit).status, uint32_t{kEccUncorrectableError});
  CHECK_EQ(s.done(a, later).status, uint32_t{kEccUncorrectableError});
  CHECK_EQ(s.done(b, other).status, 0u);
  CHECK_EQ(s.engine.nvml_json().find("\"ecc_uncorrectable\":1") != std::string::npos, true);
  CHECK_EQ(s.peers[watcher].events.size(), 2u);
  CHECK_EQ(s.peers[watcher].events[0].type, uint64_t{kEventEccUncorrectable});
  CHECK_EQ(s.peers[watcher].events[1].data, uint64_t{kXidEccUncorrectable});
}

TEST(a_corrected_error_is_counted_and_harms_nobody) {
  Simulation s(with_faults("ecc-corrected:k@2"));
  const uint32_t watcher = watch(s);
  const uint32_t a = s.join();
  s.submit(a, kernel(kMs));
  const uint64_t hit = s.submit(a, kernel(kMs));
  s.run();
  CHECK_EQ(s.done(a, hit).status, 0u);
  CHECK(s.engine.nvml_json().find("\"ecc_corrected\":1") != std::string::npos);
  CHECK_EQ(s.peers[watcher].events.size(), 1u);
  CHECK_EQ(s.peers[watcher].events[0].type, uint64_t{kEventEccCorrected});
}

TEST(a_lost_device_refuses_memory_and_is_announced) {
  Simulation s(with_faults("lost:k@1"));
  const uint32_t watcher = watch(s);
  const uint32_t a = s.join();
  s.submit(a, kernel(kMs));
  s.run();
  s.send(a, Type::kMemReserve, MemReserve{{}, 1, 4096, 0, 0});
  CHECK_EQ(s.peers[a].memory.back().status, uint32_t{kDeviceUnavailable});
  CHECK_EQ(s.peers[watcher].events.back().data, uint64_t{kXidOffTheBus});
  CHECK(s.engine.nvml_json().find("\"lost\":1") != std::string::npos);
}

TEST(a_failing_body_is_an_xid_but_no_client_can_lose_the_device_for_others) {
  for (const auto& [status, xid] : {std::pair<uint32_t, uint64_t>{kIllegalAddress, kXidMmuFault},
                                    {kLaunchFailed, kXidGraphicsException},
                                    {kDeviceUnavailable, 0}}) {
    Simulation s;
    const uint32_t watcher = watch(s);
    const uint32_t a = s.join(1), b = s.join(2);
    s.peers[a].body_status = status;
    Work work = kernel(kMs);
    work.needs_body = true;
    s.submit(a, work);
    const uint64_t other = s.submit(b, kernel(kMs));
    s.run();
    CHECK_EQ(s.done(b, other).status, 0u);
    CHECK_EQ(s.peers[watcher].events.size(), xid ? 1u : 0u);
    if (xid) CHECK_EQ(s.peers[watcher].events[0].data, xid);
    CHECK(s.engine.nvml_json().find("\"lost\":0") != std::string::npos);
  }
}

TEST(a_copy_that_fails_breaks_its_context_only) {
  Simulation s(with_faults("copy@2"));
  const uint32_t a = s.join(1), b = s.join(2);
  const uint64_t first = s.submit(b, of_kind(OpKind::kCopyHtoD, 1000));
  s.run();
  const uint64_t hit = s.submit(a, of_kind(OpKind::kCopyDtoH, 1000)),
                 later = s.submit(a, kernel(kMs));
  s.run();
  const uint64_t other = s.submit(b, of_kind(OpKind::kCopyDtoH, 1000));
  s.run();
  CHECK_EQ(s.done(a, hit).status, uint32_t{kUnknown});
  CHECK_EQ(s.done(a, later).status, uint32_t{kUnknown});
  CHECK_EQ(s.done(b, first).status, 0u);
  CHECK_EQ(s.done(b, other).status, 0u);
}

TEST(a_piece_that_cannot_be_mapped_is_said_to_be_so_once) {
  Simulation s(with_faults("map@2"));
  const uint32_t a = s.join();
  const auto vmm = static_cast<uint32_t>(MemKind::kVmm),
             linear = static_cast<uint32_t>(MemKind::kLinear);
  for (const uint32_t kind : {vmm, linear, vmm, vmm})
    s.send(a, Type::kMemReserve, MemReserve{{}, 1, 4096, 0, kind});
  std::string said;
  for (const MemReply& reply : s.peers[a].memory) said += reply.unmappable ? 'x' : '.';
  CHECK(said == "..x.");
}

TEST(only_query_connections_may_ask_for_events) {
  Simulation s;
  const uint32_t a = s.join();
  Query wish{};
  wish.what = 2;
  s.send(a, Type::kQuery, wish);
  CHECK(s.peers[a].closed);
}

TEST(probabilities_are_fixed_by_the_seed) {
  const std::string seven = sequence("launch:k%0.25,seed=7", "k", 400);
  CHECK(seven == sequence("seed=7,launch:k%0.25", "k", 400));
  CHECK(seven != sequence("seed=8,launch:k%0.25", "k", 400));
  const auto hits = static_cast<int>(std::count(seven.begin(), seven.end(), 'x'));
  CHECK(hits > 60 && hits < 140);
  CHECK(sequence("launch:k%1", "k", 3) == "xxx");
  CHECK(sequence("launch:k%1", "other", 3) == "...");
  CHECK(sequence("launch:k@2", "k", 4) == ".x..");
}

TEST(a_wrong_fault_says_what_is_wrong_with_it) {
  const std::pair<const char*, const char*> cases[] = {
      {"launch:k@0", "'0' is not a whole number from 1"},
      {"launch:k%1.5", "'1.5' is not a probability above 0 and up to 1"},
      {"launch:k%nan", "'nan' is not a probability"},
      {"slow:0@1", "'0' is not a factor from 1 to 1000000"},
      {"seed=x", "a seed is a whole number from 0"},
      {"oom:k@1", "unknown fault 'oom:k@1'"},
      {"launch@1", "unknown fault 'launch@1'"},
      {"melt:k@1", "known are oom, launch:NAME"},
  };
  for (const auto& [list, words] : cases) {
    Faults faults;
    const std::string error = faults.parse(list);
    if (error.find(words) == std::string::npos) std::fprintf(stderr, "%s\n", error.c_str());
    CHECK(error.find(words) != std::string::npos);
  }
}
