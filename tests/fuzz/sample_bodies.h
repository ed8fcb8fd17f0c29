// What the fuzzers of the sample ring and of its events do with their bytes.
#pragma once

#include <cstring>
#include <vector>

#include "bodies.h"
#include "daemon/sample_reader.h"
#include "event_writer.h"

namespace fuzz {

// A sample ring in which a job writes what it likes. Each 11 bytes are a word of a record or the
// head, its value, and whether the daemon reads afterwards.
class SampleRing {
 public:
  SampleRing() : ring_(shm::kSampleRingRecords) {}

  void run(const uint8_t* bytes, size_t size) {
    std::memset(ring_.data(), 0, kRecords * sizeof(shm::Record));
    header_.head.store(0, std::memory_order_relaxed);
    reader_.begin(1, header_);
    for (; size >= kStep; bytes += kStep, size -= kStep) {
      uint64_t value;
      std::memcpy(&value, bytes + 2, sizeof(value));
      write(size_t{bytes[0]} | size_t{bytes[1]} << 8, value);
      if (bytes[10] % 4 == 0) read();
    }
    read();
  }

 private:
  static constexpr size_t kStep = 11;
  static constexpr size_t kRecords = 64;  // written at the beginning of the ring

  void write(size_t place, uint64_t value) {
    place %= kRecords * 8 + 8;
    if (place >= kRecords * 8) header_.head.store(value, std::memory_order_relaxed);
    else std::memcpy(reinterpret_cast<char*>(ring_.data()) + 8 * place, &value, sizeof(value));
  }

  void read() {
    reader_.read(header_, ring_.data());
    const daemon::Sample& sample = reader_.sample();
    require(sample.functions.size() <= daemon::SampleReader::kMostFunctions);
    require(sample.launches.size() <= daemon::SampleReader::kMostLaunches);
    require(sample.words.size() <= daemon::SampleReader::kMostWords);
    for (const daemon::SampledFunction& function : sample.functions) {
      require(function.layout.size() <= tandem::trace::kMaxWords);
      require(function.name.size() <= tandem::trace::kMaxText);
      require(is_text(function.name.c_str(), function.name.size() + 1));
    }
    uint32_t last = 0;
    for (const daemon::SampledLaunch& launch : sample.launches) {
      require(size_t{launch.first_word} + launch.word_count <= sample.words.size());
      require(launch.function == daemon::Sample::kUnknown ||
              launch.function < sample.functions.size());
      require(launch.number != last);
      last = launch.number;
    }
  }

  std::vector<shm::Record> ring_;
  shm::RingHeader header_{};
  daemon::SampleReader reader_;
};

}  // namespace fuzz
