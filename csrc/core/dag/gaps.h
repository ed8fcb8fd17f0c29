// Finds the gaps in what a process has on the GPU, in the records of its submissions: how long others
// may expect to have it once the process is idle.
//
//   begins  when all that was submitted ends by prediction. A stream runs in order, so what is
//           submitted to it begins when what is before it ends. What the host waited for has ended,
//           and a wait that took time ended with it, whatever was predicted.
//   ends    with the next submission
//
// Shorter ones than kShortestNs are none: nobody could use them. After a launch of unknown duration
// there is none either, until the host waits for its stream. Bounded memory; constant work a record.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dag/durations.h"
#include "shm_layout.h"

namespace tandem::dag {

class GapFinder {
 public:
  static constexpr uint64_t kShortestNs = 50'000;

  // Does it matter what the record says?
  static bool concerns(const shm::Record& record);
  // One record, with nanoseconds for ticks. Records of several threads come by time; one that comes
  // late ends no gap.
  void take(const shm::Record& record);
  // Records are missing before the next one: all that is known is forgotten, and what is on the GPU.
  void lose();

  const DurationHistogram& gaps() const { return gaps_; }
  // When all that was submitted ends; UINT64_MAX = not known, or nothing was.
  uint64_t busy_until_ns() const { return busy_until_ns_; }

 private:
  static constexpr size_t kStreams = 16;
  static constexpr uint64_t kNotKnown = UINT64_MAX;
  static constexpr uint64_t kNoticedNs = 10'000;  // of a wait: shorter ones may have waited for nothing

  // Those that share a place count as one, which makes gaps shorter, never longer.
  struct Stream {
    uint64_t end_ns = 0;  // of what was submitted; kNotKnown
    uint32_t context = 0;
  };

  Stream& stream_of(const shm::Record& record);
  void submit(const shm::Record& record);
  void wait(const shm::Record& record);
  void end_gap(uint64_t at_ns);
  void set_end(Stream& stream, uint64_t end_ns);

  Stream streams_[kStreams];
  uint64_t busy_until_ns_ = kNotKnown;  // the latest end
  DurationHistogram gaps_;
};

}  // namespace tandem::dag
