// The shim's writer and the daemon's reader on one page, two implementations of one contract.
#include <vector>

#include "check.h"
#include "daemon/ring_reader.h"
#include "fake_shim.h"
#include "ring_writer.h"

using namespace tandem;

namespace {

shm::Record launch(uint64_t number) {
  shm::Record record{};
  record.kind = static_cast<uint8_t>(shm::RecordKind::kLaunch);
  record.ticks = record.value = number;
  return record;
}

}  // namespace

TEST(what_a_shim_writes_the_daemon_reads) {
  const auto channel = make_channel();
  FakeShim job(*channel);
  RingWriter writer;
  writer.claim(&job.state(), 1234);
  for (uint64_t i = 0; i < 2000; ++i) writer.put(launch(i));
  daemon::RingReader reader;
  std::vector<shm::Record> out(shm::kRingRecords);

  const auto result = reader.read(channel->pages()->ring_headers()[0], channel->pages()->ring(0),
                                  out.data(), out.size());

  CHECK_EQ(channel->pages()->ring_headers()[0].owner.load(), 1234u);
  CHECK_EQ(result.copied, shm::kRingRecords - 1);
  CHECK_EQ(result.copied + result.dropped, 2000u);
  for (size_t i = 0; i < result.copied; ++i) CHECK_EQ(out[i].value, result.dropped + i);
}

TEST(a_ring_goes_on_where_its_last_thread_left_it) {
  const auto channel = make_channel();
  FakeShim job(*channel);
  daemon::RingReader reader;
  std::vector<shm::Record> out(shm::kRingRecords);
  for (uint64_t thread = 0; thread < 3; ++thread) {
    RingWriter writer;
    writer.claim(&job.state(), static_cast<uint32_t>(100 + thread));
    writer.put(launch(thread));
    writer.release();

    const auto result = reader.read(channel->pages()->ring_headers()[0], channel->pages()->ring(0),
                                    out.data(), out.size());

    CHECK_EQ(result.copied, 1u);
    CHECK_EQ(out[0].value, thread);
  }
}

TEST(the_seventeenth_thread_writes_to_the_shared_ring) {
  const auto channel = make_channel();
  FakeShim job(*channel);
  std::vector<RingWriter> writers(18);
  for (uint32_t i = 0; i < writers.size(); ++i) {
    writers[i].claim(&job.state(), i + 1);
    writers[i].put(launch(i));
  }
  daemon::RingReader reader;
  std::vector<shm::Record> out(shm::kRingRecords);
  constexpr uint32_t kShared = shm::kRingCount - 1;

  const auto result = reader.read(channel->pages()->ring_headers()[kShared],
                                  channel->pages()->ring(kShared), out.data(), out.size());

  CHECK_EQ(result.copied, 2u);
  CHECK_EQ(out[0].value, 16u);
  CHECK_EQ(out[1].value, 17u);
}
