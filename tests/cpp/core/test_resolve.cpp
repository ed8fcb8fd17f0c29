#include "daemon/resolve.h"

#include "check.h"

using namespace tandem::daemon;
namespace shm = tandem::shm;

namespace {

constexpr uint64_t kCopy = 0xc0, kA = 0x7f0000000000, kB = 0x7f0000100000, kBytes = 4096;

shm::Record record(uint64_t at, shm::RecordKind kind, uint64_t object, uint64_t value = 0) {
  shm::Record made{};
  made.ticks = at;
  made.kind = static_cast<uint8_t>(kind);
  made.thread = 7;
  made.object = object;
  made.value = value;
  made.bytes = kind == shm::RecordKind::kAlloc ? kBytes : 0;
  made.flags = kind == shm::RecordKind::kLaunch ? shm::kRecordSampled : 0;
  return made;
}

shm::Record alloc(uint64_t at, uint64_t address) {
  return record(at, shm::RecordKind::kAlloc, address);
}
shm::Record free(uint64_t at, uint64_t address) {
  return record(at, shm::RecordKind::kFree, address);
}
shm::Record launch(uint64_t at, uint32_t number) {
  return record(at, shm::RecordKind::kLaunch, kCopy, uint64_t{1} << 32 | number);
}

// Each launch copies from A to B.
Sample sample_of(uint32_t launches) {
  Sample sample;
  sample.functions.push_back({kCopy, "_Z4copyPKfPf", {8, uint64_t{8} << 32 | 8}, false});
  sample.words = {kA, kB};
  for (uint32_t number = 1; number <= launches; ++number)
    sample.launches.push_back({number, 7, 0, false, 0, 2});
  return sample;
}

LiveMemory memory_of(std::vector<shm::Record> records, uint64_t lost = 0) {
  LiveMemory memory;
  memory.take(records.data(), records.size(), lost);
  memory.settle();
  return memory;
}

}  // namespace

TEST(launches_are_resolved_by_what_is_allocated_when_they_come) {
  Window window;
  window.memory = memory_of({alloc(1, kA)});
  window.records = {launch(10, 1), alloc(11, kB), launch(12, 2), free(13, kA), launch(14, 3)};

  const auto found = resolve(window, sample_of(3));

  CHECK_EQ(found.size(), 3u);
  CHECK(!found[0].is_all && found[1].is_all && !found[2].is_all);
  CHECK_EQ(found[1].number, 2u);
  CHECK_EQ(found[1].accesses.size(), 2u);
  CHECK_EQ(found[1].accesses[0].address, kA);
  CHECK_EQ(found[1].accesses[0].bytes, kBytes);
  CHECK(found[1].accesses[0].is_const && !found[1].accesses[1].is_const);
}

TEST(what_is_declared_wins_over_what_the_name_says) {
  Window window;
  window.memory = memory_of({alloc(1, kA), alloc(2, kB)});
  window.records = {launch(10, 1)};
  Sample sample = sample_of(1);
  sample.functions[0].name = "copy";  // the name says nothing
  const tandem::dag::ParameterType read{true, true, true}, written{true, false, true};

  const auto unknown = resolve(window, sample, {{"other", {read, written}}});
  const auto misfit = resolve(window, sample, {{"copy", {read}}});
  const auto known = resolve(window, sample, {{"copy", {read, written}}});

  CHECK(!unknown[0].is_all && !misfit[0].is_all && known[0].is_all);
  CHECK(!unknown[0].accesses[0].is_const && !misfit[0].accesses[0].is_const);
  CHECK(known[0].accesses[0].is_const && !known[0].accesses[1].is_const);
}

TEST(launches_of_other_samples_threads_or_functions_are_left_out) {
  Window window;
  window.memory = memory_of({alloc(1, kA), alloc(2, kB)});
  window.records = {launch(10, 9), launch(11, 1), launch(12, 1), launch(13, 1)};
  window.records[1].thread = 8;
  window.records[2].object = kCopy + 1;
  window.records[3].flags = 0;

  CHECK(resolve(window, sample_of(1)).empty());
}

TEST(in_a_window_with_losses_nothing_is_all) {
  Window window;
  window.memory = memory_of({alloc(1, kA), alloc(2, kB)});
  window.records = {launch(10, 1)};
  window.lost = 1;

  CHECK(!resolve(window, sample_of(1))[0].is_all);
}

TEST(memory_takes_effect_in_the_order_of_its_times) {
  const LiveMemory memory =
      memory_of({alloc(5, kA), free(3, kA), alloc(2, kA), free(6, kB), alloc(4, kB)});

  CHECK_EQ(memory.known().size(), 1u);
  CHECK_EQ(memory.known()[0].base, kA);
}

TEST(where_records_were_lost_nothing_from_before_is_known) {
  LiveMemory memory = memory_of({alloc(1, kA)});
  const shm::Record later = alloc(2, kB);
  memory.take(&later, 1, 1);
  memory.settle();
  CHECK(memory.known().empty());

  memory.take(&later, 1, 0);
  memory.settle();
  CHECK_EQ(memory.known().size(), 1u);
}

TEST(a_window_begins_with_what_was_allocated_by_then) {
  WindowTaker taker;
  taker.want(0, memory_of({alloc(1, kA)}));
  const shm::Record records[] = {alloc(20, kB), launch(60, 1)};
  taker.take(records, 2, 0);
  taker.look(0, 0, 0, 30);
  taker.look(1, 50, 0, 70);
  taker.look(2, 80, 0, 90);

  const auto found = resolve(*taker.newest(), sample_of(1));

  CHECK_EQ(found.size(), 1u);
  CHECK(found[0].is_all);
}
