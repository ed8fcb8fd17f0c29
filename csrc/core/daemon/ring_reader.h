// Reads one telemetry ring without ever writing to it.
//
// The writer overwrites and never waits, so a copied record counts only if the writer cannot have
// touched its place during the copy. With N records in a ring, and `head` read after the copy, the
// writer may be filling record `head`, which shares its place with record `head - N`: only the
// records after that one are intact, at most N - 1. Everything else counts as dropped. Nothing here
// depends on an honest writer: a head that jumps or goes back costs at most one ring of work, and
// the reader resynchronises.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shm_layout.h"

namespace tandem::daemon {

// Of `count` records copied from number `tail` on, returns how many at the beginning the writer may
// have touched meanwhile. `head` was read before the copy, `after` after it.
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

  // Copies what was written since the last call, oldest first, at most `room` records. The rest
  // stays for the next call.
  Result read(const shm::RingHeader& header, const shm::Record* ring, shm::Record* out,
              size_t room);

  // Skips everything written so far.
  void skip(const shm::RingHeader& header);

 private:
  uint64_t synchronise(uint64_t head);

  size_t ring_records_ = shm::kRingRecords;
  IsRecord is_record_ = is_telemetry;

  uint64_t tail_ = 0;  // records accounted for so far
};

}  // namespace tandem::daemon
