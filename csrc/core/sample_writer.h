// Writes into the sample ring of a process, one thread at a time: a thread that finds it taken
// gives up. No heap allocation, no waiting.
#pragma once

#include <cstdint>

#include "shm_layout.h"

namespace tandem {

class SampleWriter {
 public:
  // Tries to take the ring; `taken` says whether that worked.
  explicit SampleWriter(shm::StatePage* state);
  ~SampleWriter();
  SampleWriter(const SampleWriter&) = delete;
  SampleWriter& operator=(const SampleWriter&) = delete;

  [[nodiscard]] bool taken() const { return header_ != nullptr; }

  // Writes one event: `head` with as many words and as much text as its fields say.
  void put(const shm::Record& head, const uint64_t* words, const char* text);

 private:
  shm::RingHeader* header_ = nullptr;
  shm::Record* records_ = nullptr;
};

// For the child of a fork: a thread that does not exist there may have held the ring.
void reset_sample_lock();

}  // namespace tandem
