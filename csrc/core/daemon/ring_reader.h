// Reads one telemetry ring without ever writing to it.
//
// The writer overwrites and never waits, so a copied record counts only if the writer cannot have
// touched its place while it was copied. With N records in a ring and `head` read after the copy,
// the writer may be filling record `head`, whose place is that of `head - N`: intact are the
// records after that one, at most N - 1. Everything else is counted as dropped. Nothing here
// depends on the writer being honest: a head that jumps or goes back costs at most one ring of
// work, and is resynchronised.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shm_layout.h"

namespace tandem::daemon {

// Of `count` records copied from number `tail` on, how many at the beginning the writer may have
// touched meanwhile; `head` was read before the copy and `after` behind it.
size_t torn_records(uint64_t tail, size_t count, uint64_t head, uint64_t after,
                    size_t ring_records = shm::kRingRecords);

bool is_telemetry(const shm::Record& record);

class RingReader {
 public:
  using IsRecord = bool (*)(const shm::Record&);

  RingReader() = default;
  RingReader(size_t ring_records, IsRecord is_record)
      : ring_records_(ring_records), is_record_(is_record) {}

  struct Result {
    size_t copied = 0;
    uint64_t dropped = 0;  // lapped, torn, or not a record
  };

  // Copies what was written since the last call, oldest first, at most `room` records. What does
  // not fit stays for the next call.
  Result read(const shm::RingHeader& header, const shm::Record* ring, shm::Record* out,
              size_t room);

  // Leaves out all there is by now.
  void skip(const shm::RingHeader& header);

 private:
  uint64_t synchronise(uint64_t head);

  size_t ring_records_ = shm::kRingRecords;
  IsRecord is_record_ = is_telemetry;

  uint64_t tail_ = 0;  // records accounted for so far
};

}  // namespace tandem::daemon
