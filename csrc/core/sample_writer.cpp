#include "sample_writer.h"

#include <atomic>

#include "event_writer.h"

namespace tandem {
namespace {

// Local to the process rather than in shared memory, since nobody waits for it. Taken with acquire,
// so that the writer continues at its predecessor's head; given back with release.
std::atomic<bool> g_taken{false};

}  // namespace

void reset_sample_lock() { g_taken.store(false, std::memory_order_release); }

SampleWriter::SampleWriter(shm::StatePage* state) {
  if (g_taken.exchange(true, std::memory_order_acquire)) return;
  char* base = reinterpret_cast<char*>(state);
  header_ = reinterpret_cast<shm::RingHeader*>(base + shm::kSampleHeaderOffset);
  records_ = reinterpret_cast<shm::Record*>(base + shm::kSampleRingOffset);
}

SampleWriter::~SampleWriter() {
  if (header_) g_taken.store(false, std::memory_order_release);
}

// Publishes the head before each record: the reader of an overwritten ring must know how far the
// writer may have come.
void SampleWriter::put(const shm::Record& head, const uint64_t* words, const char* text) {
  uint64_t at = header_->head.load(std::memory_order_relaxed);
  trace::write_event(head, words, text, [&]() -> shm::Record& {
    header_->head.store(at, std::memory_order_release);  // pairs with the daemon's acquire
    return records_[at++ % shm::kSampleRingRecords];
  });
  header_->head.store(at, std::memory_order_release);
}

}  // namespace tandem
