#include "daemon/ring_reader.h"

#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "check.h"
#include "fake_shim.h"

using tandem::daemon::RingReader;
namespace shm = tandem::shm;

namespace {

struct Ring {
  shm::RingHeader header{};
  shm::Record records[shm::kRingRecords] = {};
  uint64_t written = 0;

  // Every word of a record holds the record's number, so a torn record shows.
  void write() {
    shm::Record record{};
    record.ticks = record.stream = record.object = record.bytes = written;
    record.duration_ns = record.value = written;
    record.kind = static_cast<uint8_t>(shm::RecordKind::kLaunch);
    write_record(header, records, record);
    ++written;
  }
};

bool is_whole(const shm::Record& r) {
  return r.stream == r.ticks && r.object == r.ticks && r.bytes == r.ticks &&
         r.duration_ns == r.ticks && r.value == r.ticks &&
         r.kind == static_cast<uint8_t>(shm::RecordKind::kLaunch);
}

constexpr uint64_t kMost = shm::kRingRecords - 1;

}  // namespace

TEST(an_untouched_ring_is_empty) {
  const auto ring = std::make_unique<Ring>();
  RingReader reader;
  shm::Record out[4];

  const RingReader::Result result = reader.read(ring->header, ring->records, out, 4);

  CHECK_EQ(result.copied, 0u);
  CHECK_EQ(result.dropped, 0u);
}

TEST(records_come_once_and_in_order) {
  const auto ring = std::make_unique<Ring>();
  RingReader reader;
  shm::Record out[8];
  for (int i = 0; i < 5; ++i) ring->write();

  CHECK_EQ(reader.read(ring->header, ring->records, out, 3).copied, 3u);
  CHECK_EQ(out[2].ticks, 2u);
  CHECK_EQ(reader.read(ring->header, ring->records, out, 8).copied, 2u);
  CHECK_EQ(out[1].ticks, 4u);
  CHECK_EQ(reader.read(ring->header, ring->records, out, 8).copied, 0u);
}

TEST(a_lapped_reader_counts_what_it_lost) {
  const auto ring = std::make_unique<Ring>();
  RingReader reader;
  std::vector<shm::Record> out(shm::kRingRecords);
  for (uint32_t i = 0; i < shm::kRingRecords + 10; ++i) ring->write();

  const auto result = reader.read(ring->header, ring->records, out.data(), out.size());

  CHECK_EQ(result.copied, kMost);
  CHECK_EQ(result.dropped, 11u);  // the next record's place is never trusted
  CHECK_EQ(out[0].ticks, 11u);
}

// The model is a list of numbers, of which the reader can always see the last 1023.
TEST(any_mix_of_writes_and_reads_agrees_with_a_model) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto ring = std::make_unique<Ring>();
    RingReader reader;
    std::vector<shm::Record> out(shm::kRingRecords);
    uint64_t tail = 0;
    for (int step = 0; step < 60; ++step) {
      const uint64_t writes = random() % (step % 7 == 0 ? 2500 : 300);
      for (uint64_t i = 0; i < writes; ++i) ring->write();
      const size_t room = random() % (shm::kRingRecords + 1);
      const uint64_t waiting = ring->written - tail;
      const uint64_t lost = waiting > kMost ? waiting - kMost : 0;

      const auto result = reader.read(ring->header, ring->records, out.data(), room);

      CHECK_EQ(result.dropped, lost);
      const uint64_t expected = std::min<uint64_t>(waiting - lost, room);
      CHECK_EQ(result.copied, expected);
      for (size_t i = 0; i < result.copied; ++i) {
        CHECK(is_whole(out[i]));
        CHECK_EQ(out[i].ticks, tail + lost + i);
      }
      tail += lost + result.copied;
    }
  }
}

TEST(what_the_writer_may_have_touched_during_the_copy_is_torn) {
  using tandem::daemon::torn_records;
  CHECK_EQ(torn_records(0, 10, 10, 10), 0u);
  CHECK_EQ(torn_records(0, 10, 10, kMost), 0u);
  CHECK_EQ(torn_records(0, 10, 10, kMost + 1), 1u);  // the writer is at record 0
  CHECK_EQ(torn_records(0, 10, 10, kMost + 7), 7u);
  CHECK_EQ(torn_records(0, 10, 10, 50'000), 10u);
  CHECK_EQ(torn_records(5000, 10, 5010, 5010 + kMost - 10), 0u);
  CHECK_EQ(torn_records(5000, 10, 5010, 5010 + kMost - 9), 1u);
  CHECK_EQ(torn_records(5000, 10, 5010, 5009), 10u);  // the head went back
  CHECK_EQ(torn_records(5000, 10, 5010, UINT64_MAX), 10u);
}

TEST(a_racing_writer_never_shows_a_torn_record) {
  const auto ring = std::make_unique<Ring>();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (!stop.load(std::memory_order_relaxed)) ring->write();
  });
  RingReader reader;
  std::vector<shm::Record> out(shm::kRingRecords);
  uint64_t next = 0;
  uint64_t seen = 0;
  uint64_t dropped = 0;
  const auto read = [&] {
    const auto result = reader.read(ring->header, ring->records, out.data(), out.size());
    for (size_t i = 0; i < result.copied; ++i) {
      CHECK(is_whole(out[i]));
      CHECK(out[i].ticks >= next);
      next = out[i].ticks + 1;
    }
    seen += result.copied;
    dropped += result.dropped;
  };
  std::mt19937 random(1);
  while (seen < 20'000 || dropped < 20'000) {
    // Left to itself, one of the two may be so much faster that a record is hardly ever lost, or
    // hardly ever seen.
    const uint64_t ahead = random() % (2 * kMost);
    while (ring->header.head.load(std::memory_order_relaxed) < next + ahead)
      std::this_thread::yield();
    read();
  }
  stop.store(true, std::memory_order_relaxed);
  writer.join();
  read();

  CHECK_EQ(seen + dropped, ring->written);
}

TEST(a_head_that_goes_back_is_followed_without_records) {
  const auto ring = std::make_unique<Ring>();
  RingReader reader;
  shm::Record out[8];
  for (int i = 0; i < 8; ++i) ring->write();
  CHECK_EQ(reader.read(ring->header, ring->records, out, 8).copied, 8u);
  ring->header.head.store(3);

  const auto result = reader.read(ring->header, ring->records, out, 8);

  CHECK_EQ(result.copied, 0u);
  CHECK_EQ(result.dropped, 1u);
  ring->write();
  CHECK_EQ(reader.read(ring->header, ring->records, out, 8).copied, 1u);
}

TEST(an_absurd_head_costs_at_most_one_ring) {
  const auto ring = std::make_unique<Ring>();
  std::vector<shm::Record> out(shm::kRingRecords);
  for (const uint64_t head : {UINT64_MAX, UINT64_MAX / 2, uint64_t{1} << 33, uint64_t{5000}}) {
    RingReader reader;
    ring->header.head.store(head);
    const auto result = reader.read(ring->header, ring->records, out.data(), out.size());
    CHECK(result.copied <= kMost);
    CHECK(result.dropped > 0);
  }
}

TEST(what_is_no_record_is_dropped) {
  const auto ring = std::make_unique<Ring>();
  RingReader reader;
  shm::Record out[8];
  for (int i = 0; i < 3; ++i) ring->write();
  ring->records[0].kind = static_cast<uint8_t>(shm::RecordKind::kNone);
  ring->records[2].kind = shm::kRecordKindCount;

  const auto result = reader.read(ring->header, ring->records, out, 8);

  CHECK_EQ(result.copied, 1u);
  CHECK_EQ(result.dropped, 2u);
  CHECK_EQ(out[0].ticks, 1u);
}

TEST(a_head_changed_by_another_thread_at_random_harms_nobody) {
  const auto ring = std::make_unique<Ring>();
  std::atomic<bool> stop{false};
  std::thread hostile([&] {
    std::mt19937_64 random(1);
    while (!stop.load(std::memory_order_relaxed)) {
      ring->header.head.store(random() >> (random() % 64), std::memory_order_release);
    }
  });
  RingReader reader;
  std::vector<shm::Record> out(shm::kRingRecords);
  for (int i = 0; i < 2000; ++i) {
    const auto result = reader.read(ring->header, ring->records, out.data(), 64);
    CHECK(result.copied <= 64);
  }
  stop.store(true);
  hostile.join();
}
