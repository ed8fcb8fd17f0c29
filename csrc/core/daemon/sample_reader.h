// Reads the sample ring of a process and reassembles its events (shm_layout.h).
//
// Trusts nothing: drops an event whose stated length is out of bounds, that another event
// interrupts, or that belongs to another sample. Dropped launches show as gaps in the numbers,
// which count up by one.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/ring_reader.h"
#include "daemon/sample.h"

namespace tandem::daemon {

class SampleReader {
 public:
  // Limits of one sample; further launches count as lost.
  static constexpr size_t kMostFunctions = 4096;
  static constexpr size_t kMostLaunches = 65536;
  static constexpr size_t kMostWords = 1 << 20;

  SampleReader();

  // Begins a new sample of what is written from now on.
  void begin(uint32_t number, const shm::RingHeader& header);

  // Reads what was written since the last call, at most one ring of it.
  void read(const shm::RingHeader& header, const shm::Record* ring);

  const Sample& sample() const { return sample_; }
  Sample take() { return std::move(sample_); }

 private:
  // An event of which a part is still missing.
  struct Event {
    shm::Record head;
    std::vector<uint64_t> words;
    std::string text;
    bool is_open = false;
  };

  void take(const shm::Record& record);
  void begin_event(const shm::Record& head);
  void add_words(const shm::Record& record);
  void add_text(const shm::Record& record);
  void end_if_complete();
  void add_function();
  void add_launch();
  bool counts(uint32_t number);

  RingReader ring_;
  std::vector<shm::Record> scratch_;
  Event event_;
  Sample sample_;
  std::unordered_map<uint64_t, uint32_t> functions_;  // number -> place in the sample
  uint32_t last_ = 0;                                 // number of the last launch; 0 = none yet
};

}  // namespace tandem::daemon
