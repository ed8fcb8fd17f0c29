#include "daemon/bounds.h"

#include "check.h"

using namespace tandem::daemon;
namespace shm = tandem::shm;
using tandem::dag::analysis::Class;
using tandem::dag::analysis::Device;

namespace {

constexpr uint64_t kA = 0x7f0000000000, kB = 0x7f0000100000, kBytes = 40000;
constexpr Device kDevice = {8, 1000000000, 5000, 0.6, 0.2};  // 1 byte/ns

shm::Record record(uint64_t at, shm::RecordKind kind, uint64_t object) {
  shm::Record made{};
  made.ticks = at;
  made.kind = static_cast<uint8_t>(kind);
  made.thread = 7;
  made.stream = 5;
  made.object = object;
  made.value = uint64_t{1} << 32;
  made.bytes = kind == shm::RecordKind::kAlloc ? kBytes : 0;
  return made;
}

shm::Record launch(uint32_t number, uint64_t duration_ns, uint32_t blocks = 8) {
  shm::Record made = record(10 + number, shm::RecordKind::kLaunch, 0xc0);
  made.flags = shm::kRecordSampled;
  made.value |= number;
  made.duration_ns = duration_ns;
  made.grid_blocks = blocks;
  return made;
}

// Each launch gets A and B, of which 80,000 bytes could be moved; the kernel's name says nothing.
Sample sample_of(uint32_t launches) {
  Sample sample;
  sample.functions.push_back({0xc0, "kernel", {8, uint64_t{8} << 32 | 8}, false});
  sample.words = {kA, kB};
  for (uint32_t number = 1; number <= launches; ++number)
    sample.launches.push_back({number, 7, 0, false, 0, 2});
  return sample;
}

Window window_of(std::vector<shm::Record> launches) {
  Window window;
  const shm::Record known[] = {record(1, shm::RecordKind::kAlloc, kA),
                               record(2, shm::RecordKind::kAlloc, kB)};
  window.memory.take(known, 2, 0);
  window.memory.settle();
  window.records = std::move(launches);
  return window;
}

double share(const Bounds& found, Class of) { return found.share[static_cast<size_t>(of)]; }

}  // namespace

TEST(launches_are_classified_by_the_buffers_that_they_were_given) {
  const Window window =
      window_of({launch(1, 100000), launch(2, 900000), launch(3, 200000), launch(4, 300000, 7)});

  const Bounds found = bounds_of(window, sample_of(4), kDevice);

  CHECK_EQ(share(found, Class::kMemory), 100000.0 / 1500000);
  CHECK_EQ(share(found, Class::kCompute), 900000.0 / 1500000);
  CHECK_EQ(share(found, Class::kUnknown), 200000.0 / 1500000);
  CHECK_EQ(share(found, Class::kSmall), 300000.0 / 1500000);
  CHECK_EQ(found.operations, 4u);
  CHECK_EQ(found.untimed, 0u);
}

TEST(durations_from_when_others_ran_are_fitted_into_the_iteration) {
  Window window = window_of({launch(1, 200000)});
  window.end_ns = 100011;
  CHECK_EQ(share(bounds_of(window, sample_of(1), kDevice), Class::kUnknown), 1.0);

  window.iterations = 1;
  CHECK_EQ(share(bounds_of(window, sample_of(1), kDevice), Class::kMemory), 1.0);

  window.end_ns = 300000;  // now they fit
  CHECK_EQ(share(bounds_of(window, sample_of(1), kDevice), Class::kUnknown), 1.0);
}

TEST(launches_that_were_not_sampled_or_lost_their_memory_are_unknown) {
  Window window = window_of({launch(1, 100000), launch(2, 100000)});
  CHECK_EQ(share(bounds_of(window, sample_of(1), kDevice), Class::kUnknown), 0.5);

  window.lost = 1;

  CHECK_EQ(share(bounds_of(window, sample_of(2), kDevice), Class::kUnknown), 1.0);
}

TEST(what_is_not_timed_is_counted_and_in_no_share) {
  const Bounds found =
      bounds_of(window_of({launch(1, 0), launch(2, 100000)}), sample_of(2), kDevice);

  CHECK_EQ(found.operations, 2u);
  CHECK_EQ(found.untimed, 1u);
  CHECK_EQ(share(found, Class::kMemory), 1.0);
}

TEST(of_an_unknown_device_only_what_does_not_depend_on_it_is_known) {
  const Bounds found = bounds_of(window_of({launch(1, 100000)}), sample_of(1), {});

  CHECK_EQ(share(found, Class::kUnknown), 1.0);
  CHECK_EQ(bounds_of({}, {}, kDevice).operations, 0u);
}
