#include "daemon/sample_reader.h"

#include <algorithm>
#include <cstring>

#include "daemon/utf8.h"
#include "event_writer.h"

namespace tandem::daemon {
namespace {

using shm::RecordKind;

constexpr size_t kBatch = 1024;               // records copied at a time
constexpr uint32_t kPlausibleGap = 1u << 20;  // between the numbers of launches; more is garbage

RecordKind kind_of(const shm::Record& record) { return static_cast<RecordKind>(record.kind); }

bool is_head(const shm::Record& record) {
  return kind_of(record) == RecordKind::kFunction || kind_of(record) == RecordKind::kParameters;
}

// Names are printed: what is not text does not count as a name.
bool is_text(const std::string& text) {
  const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
  return valid_utf8_bytes(text.data(), text.size()) == text.size() &&
         std::none_of(text.begin(), text.end(), is_control);
}

bool is_of_sample_ring(const shm::Record& record) {
  return is_head(record) || kind_of(record) == RecordKind::kWords ||
         kind_of(record) == RecordKind::kText;
}

}  // namespace

SampleReader::SampleReader() : ring_(shm::kSampleRingRecords, is_of_sample_ring) {}

void SampleReader::begin(uint32_t number, const shm::RingHeader& header) {
  ring_.skip(header);
  sample_ = {};
  sample_.number = number;
  functions_.clear();
  event_ = {};
  last_ = 0;
}

void SampleReader::read(const shm::RingHeader& header, const shm::Record* ring) {
  scratch_.resize(kBatch);
  for (size_t done = 0; done < shm::kSampleRingRecords; done += kBatch) {
    const RingReader::Result got = ring_.read(header, ring, scratch_.data(), kBatch);
    if (got.dropped) event_.is_open = false;
    for (size_t i = 0; i < got.copied; ++i) take(scratch_[i]);
    if (got.copied < kBatch) return;
  }
}

void SampleReader::take(const shm::Record& record) {
  if (is_head(record)) begin_event(record);
  else if (!event_.is_open) return;
  else if (kind_of(record) == RecordKind::kWords) add_words(record);
  else add_text(record);
  end_if_complete();
}

void SampleReader::begin_event(const shm::Record& head) {
  event_.head = head;
  event_.words.clear();
  event_.text.clear();
  event_.is_open = head.stream == sample_.number && head.grid_blocks <= trace::kMaxWords &&
                   head.block_threads <= trace::kMaxText;
}

void SampleReader::add_words(const shm::Record& record) {
  const size_t missing = event_.head.grid_blocks - event_.words.size();
  const size_t count = std::min<size_t>(missing, trace::kWordsARecord);
  uint64_t words[trace::kWordsARecord];
  std::memcpy(words, trace::payload(record), sizeof(words));
  event_.words.insert(event_.words.end(), words, words + count);
}

// Words come before text, so if some are missing the event is broken.
void SampleReader::add_text(const shm::Record& record) {
  if (event_.words.size() < event_.head.grid_blocks) event_.is_open = false;
  const size_t missing = event_.head.block_threads - event_.text.size();
  event_.text.append(trace::payload(record), std::min<size_t>(missing, trace::kTextARecord));
}

void SampleReader::end_if_complete() {
  if (!event_.is_open || event_.words.size() < event_.head.grid_blocks ||
      event_.text.size() < event_.head.block_threads) {
    return;
  }
  event_.is_open = false;
  if (kind_of(event_.head) == RecordKind::kFunction) add_function();
  else add_launch();
}

void SampleReader::add_function() {
  if (sample_.functions.size() == kMostFunctions) return;
  functions_[event_.head.bytes] = static_cast<uint32_t>(sample_.functions.size());
  SampledFunction& function = sample_.functions.emplace_back();
  function.handle = event_.head.object;
  if (is_text(event_.text)) function.name = event_.text;
  function.layout = event_.words;
  function.is_cut = event_.head.flags & shm::kSampleCut;
}

void SampleReader::add_launch() {
  const auto number = static_cast<uint32_t>(event_.head.value);
  if (!counts(number)) return;
  if (sample_.launches.size() == kMostLaunches ||
      sample_.words.size() + event_.words.size() > kMostWords) {
    ++sample_.lost;
    return;
  }
  const auto function = functions_.find(event_.head.bytes);
  SampledLaunch& launch = sample_.launches.emplace_back();
  launch.number = number;
  launch.thread = event_.head.thread;
  launch.function = function == functions_.end() ? Sample::kUnknown : function->second;
  launch.is_cut = event_.head.flags & shm::kSampleCut;
  launch.first_word = static_cast<uint32_t>(sample_.words.size());
  launch.word_count = static_cast<uint32_t>(event_.words.size());
  sample_.words.insert(sample_.words.end(), event_.words.begin(), event_.words.end());
}

// Returns false if the number cannot follow the last one.
bool SampleReader::counts(uint32_t number) {
  const uint32_t step = number - last_;  // the numbers wrap
  const bool is_first = last_ == 0;
  if (number == 0 || (!is_first && (step == 0 || step > kPlausibleGap))) return false;
  if (!is_first) sample_.lost += step - 1;
  last_ = number;
  return true;
}

}  // namespace tandem::daemon
