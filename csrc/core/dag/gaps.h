// Finds the gaps in a process's GPU work from the records of its submissions: how long others can
// expect to have the GPU once the process is idle.
//
//   begins  when everything submitted is predicted to end. A stream runs in order, so a submission
//           begins when the one before it ends. Whatever the host waited for has ended, and if the
//           wait took time the work ended with it, whatever was predicted.
//   ends    with the next submission
//
// Gaps shorter than kShortestNs do not count: nobody could use them. After a launch of unknown
// duration there is no gap either, until the host waits for its stream. Bounded memory; constant
// work per record.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dag/durations.h"
#include "shm_layout.h"

namespace tandem::dag {

class GapFinder {
 public:
  static constexpr uint64_t kShortestNs = 50'000;

  // True if the finder needs the record.
  static bool concerns(const shm::Record& record);
  // Takes one record, with ticks in nanoseconds. Records of several threads must come by time; one
  // that comes late ends no gap.
  void take(const shm::Record& record);
  // Records are missing before the next one: forgets everything, including what is on the GPU.
  void lose();

  const DurationHistogram& gaps() const { return gaps_; }
  // When everything submitted ends; UINT64_MAX = not known, or nothing was submitted.
  uint64_t busy_until_ns() const { return busy_until_ns_; }

 private:
  static constexpr size_t kStreams = 16;
  static constexpr uint64_t kNotKnown = UINT64_MAX;
  static constexpr uint64_t kNoticedNs = 10'000;  // shorter waits may have waited for nothing

  // Streams that share an entry count as one, which makes gaps shorter, never longer.
  struct Stream {
    uint64_t end_ns = 0;  // of everything submitted to it; or kNotKnown
    uint32_t context = 0;
  };

  Stream& stream_of(const shm::Record& record);
  void submit(const shm::Record& record);
  void wait(const shm::Record& record);
  void end_gap(uint64_t at_ns);
  void set_end(Stream& stream, uint64_t end_ns);

  Stream streams_[kStreams];
  uint64_t busy_until_ns_ = kNotKnown;  // the latest end of all streams
  DurationHistogram gaps_;
};

}  // namespace tandem::dag
