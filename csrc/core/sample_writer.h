// Writes into the sample ring of a process. One thread at a time: whoever finds it taken goes away. No
// heap, and no wait.
#pragma once

#include <cstdint>

#include "shm_layout.h"

namespace tandem {

class SampleWriter {
 public:
  // Takes the ring; `taken` says whether it could.
  explicit SampleWriter(shm::StatePage* state);
  ~SampleWriter();
  SampleWriter(const SampleWriter&) = delete;
  SampleWriter& operator=(const SampleWriter&) = delete;

  [[nodiscard]] bool taken() const { return header_ != nullptr; }

  // One event: `head` with as many words and as much text as it says.
  void put(const shm::Record& head, const uint64_t* words, const char* text);

 private:
  shm::RingHeader* header_ = nullptr;
  shm::Record* records_ = nullptr;
};

// A fork may have left the ring taken by a thread that does not exist any more.
void reset_sample_lock();

}  // namespace tandem
