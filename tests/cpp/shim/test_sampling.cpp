// What a launch writes to the sample ring, and when it writes nothing.
#include <algorithm>
#include <vector>

#include "check.h"
#include "event_writer.h"
#include "pages.h"
#include "sample_writer.h"
#include "sampling.h"

namespace {

using namespace pages;

// The handle of a function encodes its parameters: how many there are, and the bytes of each.
CUfunction function(long count, long bytes) {
  return reinterpret_cast<CUfunction>(count << 16 | bytes << 32 | 1);
}
CUresult parameter(CUfunction f, size_t index, size_t* offset, size_t* bytes) {
  const auto handle = reinterpret_cast<uint64_t>(f);
  if (index >= (handle >> 16 & 0xffff)) return CUDA_ERROR_INVALID_VALUE;
  *bytes = handle >> 32;
  *offset = index * *bytes;
  return CUDA_SUCCESS;
}

Channel* sampled_channel() {
  make_driver();
  g_driver.cuFuncGetParamInfo = parameter;
  g_driver.cuFuncGetName = [](const char** name, CUfunction) {
    return *name = "_Z3addPf", CUDA_SUCCESS;
  };
  Channel* channel = make_channel();
  channel->has_samples = true;
  command_of(channel).gate.sample = 1;
  command_of(channel).gate.flags.fetch_or(shm::kFlagSample);
  return channel;
}

std::vector<shm::Record> ring_of(const Channel* channel) {
  const char* base = reinterpret_cast<const char*>(channel->state);
  const auto* header = reinterpret_cast<const shm::RingHeader*>(base + shm::kSampleHeaderOffset);
  const auto* records = reinterpret_cast<const shm::Record*>(base + shm::kSampleRingOffset);
  return {records, records + header->head.load()};
}

size_t count_of(const std::vector<shm::Record>& records, shm::RecordKind kind) {
  return static_cast<size_t>(std::count_if(records.begin(), records.end(), [&](const auto& r) {
    return r.kind == static_cast<uint8_t>(kind);
  }));
}

}  // namespace

TEST(a_function_is_told_once_a_sample) {
  Channel* channel = sampled_channel();
  uint64_t value = 7;
  void* values[] = {&value};

  CHECK(sample_launch(*channel, {function(1, 8), values, nullptr}) != 0);
  CHECK(sample_launch(*channel, {function(1, 8), values, nullptr}) != 0);
  CHECK_EQ(count_of(ring_of(channel), shm::RecordKind::kFunction), 1u);
  command_of(channel).gate.sample = 2;
  CHECK(sample_launch(*channel, {function(1, 8), values, nullptr}) != 0);

  const auto records = ring_of(channel);
  CHECK_EQ(count_of(records, shm::RecordKind::kFunction), 2u);
  CHECK_EQ(count_of(records, shm::RecordKind::kParameters), 3u);
  CHECK_EQ(records.back().stream, 7u);  // the words of the last launch
}

TEST(a_launch_that_finds_the_ring_taken_goes_on_without) {
  Channel* channel = sampled_channel();
  {
    const SampleWriter other(channel->state);
    CHECK(other.taken());

    CHECK_EQ(sample_launch(*channel, {function(0, 0), nullptr, nullptr}), 0u);
  }
  CHECK(ring_of(channel).empty());
  CHECK(sample_launch(*channel, {function(0, 0), nullptr, nullptr}) != 0);
}

TEST(a_child_of_a_fork_gets_a_ring_that_its_parent_had_taken) {
  Channel* channel = sampled_channel();
  alignas(SampleWriter) char place[sizeof(SampleWriter)];
  new (place) SampleWriter(channel->state);  // as by a thread that the child does not have

  reset_sample_lock();

  CHECK(sample_launch(*channel, {function(0, 0), nullptr, nullptr}) != 0);
}

TEST(more_words_than_an_event_holds_are_cut_and_it_is_said) {
  Channel* channel = sampled_channel();
  const std::vector<uint64_t> large(100, 5);
  void* values[] = {const_cast<uint64_t*>(large.data()), const_cast<uint64_t*>(large.data())};

  CHECK(sample_launch(*channel, {function(2, 8 * 60), values, nullptr}) != 0);

  for (const shm::Record& record : ring_of(channel)) {
    if (record.kind != static_cast<uint8_t>(shm::RecordKind::kParameters)) continue;
    CHECK_EQ(record.grid_blocks, 60u);  // the first parameter, complete
    CHECK_EQ(record.flags, shm::kSampleCut);
  }
}

TEST(a_buffer_that_is_too_short_for_a_parameter_is_not_read_beyond_its_end) {
  Channel* channel = sampled_channel();
  uint64_t values[] = {1, 2};
  size_t bytes = 12;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, values, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};

  CHECK(sample_launch(*channel, {function(2, 8), nullptr, extra}) != 0);

  const auto records = ring_of(channel);
  const shm::Record& head = records[records.size() - 2];
  CHECK_EQ(head.grid_blocks, 1u);
  CHECK_EQ(head.flags, shm::kSampleCut);
}

TEST(what_the_driver_does_not_say_is_not_sampled) {
  Channel* channel = sampled_channel();
  g_driver.cuFuncGetParamInfo = nullptr;
  uint64_t value = 7;
  void* values[] = {&value};

  CHECK_EQ(sample_launch(*channel, {function(9, 8), values, nullptr}), 0u);
  g_driver.cuFuncGetParamInfo = parameter;
  CHECK_EQ(sample_launch(*channel, {function(1, 8), nullptr, nullptr}), 0u);  // without any values

  CHECK_EQ(count_of(ring_of(channel), shm::RecordKind::kParameters), 0u);
}

TEST(without_a_ring_nothing_is_written) {
  Channel* channel = sampled_channel();
  channel->has_samples = false;

  CHECK_EQ(sample_launch(*channel, {function(0, 0), nullptr, nullptr}), 0u);

  CHECK(ring_of(channel).empty());
}
