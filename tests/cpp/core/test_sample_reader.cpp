// Samples read from a ring that is overwritten, cut short and filled with lies.
#include <string>
#include <vector>

#include "check.h"
#include "daemon/sampler.h"
#include "event_writer.h"
#include "fake_shim.h"
#include "sample_writer.h"

namespace {

using namespace tandem;
using daemon::Sample;
using daemon::Sampler;
using daemon::SampleReader;

constexpr uint32_t kNumber = 3;  // of the sample

struct Ring {
  std::unique_ptr<daemon::Channel> channel = make_channel();
  FakeShim shim{*channel};
  SampleReader reader;

  Ring() { reader.begin(kNumber, pages().sample_header()); }
  const daemon::Pages& pages() const { return *channel->pages(); }
  void read() { reader.read(pages().sample_header(), pages().sample_ring()); }
  const Sample& sample() const { return reader.sample(); }

  void put(const shm::Record& head, const uint64_t* words, const char* text) {
    SampleWriter writer(&shim.state());
    writer.put(head, words, text);
  }
  void function(uint64_t number, const std::string& name, const std::vector<uint64_t>& layout) {
    shm::Record head = blank(shm::RecordKind::kFunction);
    head.object = 0x100 + number;
    head.bytes = number;
    head.grid_blocks = static_cast<uint32_t>(layout.size());
    head.block_threads = static_cast<uint32_t>(name.size());
    put(head, layout.data(), name.data());
  }
  void launch(uint32_t number, uint64_t function, const std::vector<uint64_t>& words) {
    shm::Record head = blank(shm::RecordKind::kParameters);
    head.bytes = function;
    head.value = number;
    head.grid_blocks = static_cast<uint32_t>(words.size());
    put(head, words.data(), nullptr);
  }
  static shm::Record blank(shm::RecordKind kind) {
    shm::Record record{};
    record.kind = static_cast<uint8_t>(kind);
    record.stream = kNumber;
    record.thread = 9;
    return record;
  }
};

}  // namespace

TEST(functions_and_launches_come_out_as_they_went_in) {
  Ring ring;
  const std::string name(100, 'n');
  const std::vector<uint64_t> words{1, 2, 3, 4, 5, 6, 7};
  ring.function(1, name, {8, uint64_t{8} << 32 | 4});
  ring.launch(1, 1, words);
  ring.launch(2, 1, {});

  ring.read();

  const Sample& sample = ring.sample();
  CHECK_EQ(sample.functions.size(), 1u);
  CHECK(sample.functions[0].name == name && sample.functions[0].handle == 0x101);
  CHECK_EQ(sample.functions[0].layout[1], uint64_t{8} << 32 | 4);
  CHECK_EQ(sample.launches.size(), 2u);
  CHECK_EQ(sample.launches[0].function, 0u);
  CHECK_EQ(sample.launches[0].thread, 9u);
  CHECK(sample.words == words);
  CHECK_EQ(sample.launches[1].word_count, 0u);
  CHECK_EQ(sample.lost, 0u);
}

TEST(an_event_may_come_in_two_halves) {
  Ring ring;
  const std::vector<uint64_t> words(20, 5);
  shm::Record head = Ring::blank(shm::RecordKind::kParameters);
  head.value = 1;
  head.grid_blocks = 20;
  ring.put(head, words.data(), nullptr);
  auto& header = *reinterpret_cast<shm::RingHeader*>(reinterpret_cast<char*>(&ring.shim.state()) +
                                                     shm::kSampleHeaderOffset);
  const uint64_t end = header.head.load();

  header.head.store(end - 2);
  ring.read();
  CHECK(ring.sample().launches.empty());
  header.head.store(end);
  ring.read();

  CHECK_EQ(ring.sample().launches.size(), 1u);
  CHECK(ring.sample().words == words);
}

TEST(launches_that_were_overwritten_are_counted_as_lost) {
  Ring ring;
  ring.launch(1, 1, {});
  ring.read();
  for (uint32_t number = 2; number <= 3 * shm::kSampleRingRecords; ++number)
    ring.launch(number, 1, {});

  ring.read();

  const Sample& sample = ring.sample();
  CHECK_EQ(sample.launches.back().number, 3 * shm::kSampleRingRecords);
  CHECK_EQ(sample.launches.size() + sample.lost, 3 * shm::kSampleRingRecords);
  CHECK_EQ(sample.launches.size(), shm::kSampleRingRecords);  // the first, and those in the ring
}

TEST(a_launch_whose_function_was_lost_has_an_unknown_one) {
  Ring ring;
  ring.launch(1, 77, {4});

  ring.read();

  CHECK_EQ(ring.sample().launches[0].function, Sample::kUnknown);
}

TEST(what_is_left_of_an_earlier_sample_is_not_taken_for_this_one) {
  Ring ring;
  shm::Record head = Ring::blank(shm::RecordKind::kParameters);
  head.stream = kNumber - 1;
  head.value = 1;
  ring.put(head, nullptr, nullptr);

  ring.read();

  CHECK(ring.sample().launches.empty());
}

TEST(an_event_that_was_never_finished_spoils_no_other) {
  Ring ring;
  shm::Record head = Ring::blank(shm::RecordKind::kParameters);
  head.grid_blocks = 0;
  head.value = 1;
  ring.put(head, nullptr, nullptr);
  auto* records = reinterpret_cast<shm::Record*>(reinterpret_cast<char*>(&ring.shim.state()) +
                                                 shm::kSampleRingOffset);
  records[0].grid_blocks = 50;  // the writer died after its head
  ring.launch(2, 1, {8});

  ring.read();

  CHECK_EQ(ring.sample().launches.size(), 1u);
  CHECK_EQ(ring.sample().launches[0].number, 2u);
}

TEST(names_with_control_characters_are_no_names) {
  Ring ring;
  ring.function(1, "bell\a", {});

  ring.read();

  CHECK(ring.sample().functions[0].name.empty());
}

TEST(a_sample_holds_no_more_than_it_may) {
  Ring ring;
  const std::vector<uint64_t> words(trace::kMaxWords, 1);
  const auto most = static_cast<uint32_t>(SampleReader::kMostWords / words.size());
  for (uint32_t number = 1; number <= most + 5; ++number) {
    ring.launch(number, 1, words);
    ring.read();
  }

  CHECK_EQ(ring.sample().launches.size(), most);
  CHECK_EQ(ring.sample().lost, 5u);
}

TEST(a_sample_ends_with_the_window_it_was_asked_for) {
  const auto channel = make_channel();
  const daemon::Pages& pages = *channel->pages();
  const auto asked = [&] { return pages.command().gate.flags.load() & shm::kFlagSample; };
  Sampler sampler;
  sampler.begin(pages, {1000, true, 1'000'000});
  CHECK(asked());

  sampler.look(pages, true, 1000);
  CHECK(asked());
  sampler.look(pages, false, 2000);
  CHECK(!asked() && !sampler.take(1));  // a launch may be on its way into the ring
  sampler.look(pages, false, 3000);

  CHECK(!sampler.take(2));
  CHECK_EQ(sampler.take(1)->number, 1u);
  CHECK(!sampler.take(1));
}

TEST(other_flags_may_change_while_a_sample_is_under_way) {
  const auto channel = make_channel();
  const auto flags = [&] { return channel->pages()->command().gate.flags.load(); };
  Sampler sampler;
  sampler.begin(*channel->pages(), {1000, false, 1000});

  channel->set_flags(shm::kFlagTelemetry);
  CHECK_EQ(flags(), shm::kFlagTelemetry | shm::kFlagSample);
  sampler.look(*channel->pages(), false, 1000);

  CHECK_EQ(flags(), shm::kFlagTelemetry);
}
