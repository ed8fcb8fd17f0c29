// A traced thread's writer and the tracer's reader. Nothing is lost while the reader reads, and
// losses are counted when it does not.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "daemon/trace_reader.h"
#include "trace_writer.h"

using namespace tandem;
using namespace tandem::trace;

namespace {

constexpr uint64_t kKey = 0x1234;
constexpr uint32_t kShortWaitMs = 20;
constexpr uint32_t kPatientMs = 20'000;

struct Trace {
  explicit Trace(uint32_t wait_ms) {
    const daemon::Failure failure = reader.open(true, wait_ms, kKey);
    CHECK(!failure);
    place = "/proc/self/fd/" + std::to_string(reader.descriptor()) + ":1234";
    CHECK(map.open(place.c_str()));
  }
  std::vector<shm::Record> drain(bool look_for_dead = false) {
    std::string bytes;
    reader.drain(look_for_dead, &bytes);
    std::vector<shm::Record> records(bytes.size() / sizeof(shm::Record));
    if (!bytes.empty()) std::memcpy(records.data(), bytes.data(), bytes.size());
    return records;
  }
  daemon::TraceReader reader;
  TraceMap map;
  std::string place;
};

shm::Record call(uint64_t number, uint32_t words = 0, uint32_t text_bytes = 0) {
  shm::Record record{};
  record.kind = static_cast<uint8_t>(shm::RecordKind::kCall);
  record.object = number;
  record.grid_blocks = words;
  record.block_threads = text_bytes;
  return record;
}

uint32_t own_pid() { return static_cast<uint32_t>(getpid()); }

bool is_kind(const shm::Record& record, shm::RecordKind kind) {
  return record.kind == static_cast<uint8_t>(kind);
}

}  // namespace

TEST(an_event_arrives_whole_with_its_words_and_text) {
  Trace trace(kShortWaitMs);
  TraceWriter writer;
  CHECK(writer.claim(trace.map, own_pid(), own_pid()));
  const uint64_t words[] = {1, 2, 3, 4, 5, 6, 7};
  const std::string text(50, 'x');
  CHECK(writer.put(call(9, 7, 50), words, text.c_str()));

  const auto records = trace.drain();

  CHECK_EQ(records.size(), 6u);
  CHECK(is_kind(records[0], shm::RecordKind::kChunk));
  CHECK_EQ(records[0].object, own_pid());
  CHECK_EQ(records[0].bytes, 5u);
  CHECK_EQ(records[1].object, 9u);
  CHECK(is_kind(records[2], shm::RecordKind::kWords) && records[2].stream == 1);
  CHECK(is_kind(records[3], shm::RecordKind::kWords) && records[3].stream == 7);
  CHECK_EQ(records[3].object, 0u);
  CHECK(is_kind(records[5], shm::RecordKind::kText));
  CHECK(std::memcmp(&records[5].stream, "xx\0", 3) == 0);
  CHECK(trace.drain().empty());
}

TEST(what_is_no_trace_is_not_opened) {
  Trace trace(kShortWaitMs);
  TraceMap map;
  CHECK(!map.open((trace.place + "5").c_str()));  // another key
  CHECK(!map.open("/dev/null:1234") && !map.open("/nowhere:1234") && !map.open("nothing"));
  CHECK(!map.open(std::string(200, 'x').c_str()));
  CHECK(!map.is_open());
}

TEST(without_a_reader_a_writer_waits_once_and_then_counts) {
  Trace trace(kShortWaitMs);
  TraceWriter writer;
  CHECK(writer.claim(trace.map, own_pid(), own_pid()));
  for (uint64_t i = 0; i < kTraceRingRecords; ++i) CHECK(writer.put(call(i), nullptr, nullptr));
  for (int i = 0; i < 1000; ++i) CHECK(!writer.put(call(0), nullptr, nullptr));  // 20 ms, not 20 s

  const auto records = trace.drain();
  CHECK_EQ(records.size(), kTraceRingRecords + 2u);
  CHECK(is_kind(records.back(), shm::RecordKind::kLost));
  CHECK_EQ(records.back().value, 1000u);
  CHECK_EQ(trace.reader.lost(), 1000u);

  CHECK(writer.put(call(7), nullptr, nullptr));  // there is room again
  CHECK_EQ(trace.drain().back().object, 7u);
}

TEST(with_a_slow_reader_nothing_is_lost) {
  constexpr uint64_t kCalls = 5 * kTraceRingRecords;
  Trace trace(kPatientMs);
  std::thread job([&trace] {
    TraceWriter writer;
    CHECK(writer.claim(trace.map, own_pid(), 1));
    for (uint64_t i = 0; i < kCalls; ++i) {
      const uint64_t words[] = {i, ~i};
      CHECK(writer.put(call(i, 2), words, nullptr));
    }
    writer.give_back();
  });
  uint64_t next = 0;
  while (trace.reader.threads() > 0 || next < kCalls) {
    const auto records = trace.drain();
    for (size_t at = 0; at < records.size(); ++at) {
      if (!is_kind(records[at], shm::RecordKind::kCall)) continue;
      CHECK_EQ(records[at].object, next);
      CHECK_EQ(records[at + 1].stream, next);
      ++next;
    }
  }
  job.join();
  CHECK_EQ(next, kCalls);
  CHECK_EQ(trace.reader.lost(), 0u);
}

TEST(a_ring_goes_to_the_next_thread_once_it_was_read) {
  Trace trace(kShortWaitMs);
  std::vector<TraceWriter> writers(kTraceRings);
  for (uint32_t i = 0; i < kTraceRings; ++i) CHECK(writers[i].claim(trace.map, own_pid(), i + 1));
  TraceWriter late;
  CHECK(!late.claim(trace.map, own_pid(), 9999));

  writers[7].put(call(70), nullptr, nullptr);
  writers[7].give_back();
  CHECK(!late.claim(trace.map, own_pid(), 9999));  // not read yet
  CHECK_EQ(trace.drain().back().object, 70u);
  CHECK(late.claim(trace.map, own_pid(), 9999));
  late.put(call(71), nullptr, nullptr);

  const auto records = trace.drain();
  CHECK_EQ(records.size(), 2u);
  CHECK_EQ(records[0].thread, 9999u);
  for (TraceWriter& writer : writers) writer.forget();
  late.forget();
}

TEST(a_killed_process_leaves_its_calls_and_the_one_it_was_in) {
  Trace trace(kShortWaitMs);
  const pid_t child = fork();
  if (child == 0) {
    TraceWriter writer;
    const auto pid = static_cast<uint32_t>(getpid());
    writer.claim(trace.map, pid, pid);
    writer.put(call(1), nullptr, nullptr);
    writer.enter(33, 2, 5000);
    _exit(0);
  }
  waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOWAIT);

  const auto records = trace.drain(true);  // a zombie counts as dead

  CHECK_EQ(records.size(), 4u);
  CHECK_EQ(records[1].object, 1u);
  CHECK_EQ(records[3].slot, 33u);
  CHECK_EQ(records[3].flags, kCallUnfinished);
  CHECK_EQ(records[3].object, 2u);
  CHECK_EQ(records[3].ticks, 5000u);
  CHECK_EQ(trace.reader.threads(), 0u);
  waitpid(child, nullptr, 0);
}

TEST(a_head_that_is_a_lie_harms_nobody) {
  Trace trace(kShortWaitMs);
  TraceWriter writer;
  CHECK(writer.claim(trace.map, own_pid(), own_pid()));
  trace.map.ring(0).writer.head.store(~uint64_t{0});

  CHECK(trace.drain(true).empty());

  trace.map.ring(1).owner.owner.store(~uint64_t{0});  // no such thread
  trace.drain(true);
  CHECK_EQ(trace.map.ring(1).owner.owner.load(), 0u);
  writer.forget();
}
