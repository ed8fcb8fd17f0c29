// Events: records of variable length for what does not fit into one record. An event is a head,
// then its words, six per record, then its text, 48 bytes per record (trace_layout.h). Used in
// traces of calls and in the sample ring.
#pragma once

#include <cstdint>
#include <cstring>

#include "trace_layout.h"

namespace tandem::trace {

// The longest event; this bounds the time that writing one takes.
inline constexpr uint32_t kMaxWords = 96;
inline constexpr uint32_t kMaxText = 4096;

constexpr uint32_t records_for(uint32_t words, uint32_t text_bytes) {
  return 1 + (words + kWordsARecord - 1) / kWordsARecord +
         (text_bytes + kTextARecord - 1) / kTextARecord;
}

inline char* payload(shm::Record& record) {
  return reinterpret_cast<char*>(&record) + offsetof(shm::Record, stream);
}
inline const char* payload(const shm::Record& record) {
  return reinterpret_cast<const char*>(&record) + offsetof(shm::Record, stream);
}

inline shm::Record continuation(shm::RecordKind kind, const shm::Record& head) {
  shm::Record record{};
  record.ticks = head.ticks;
  record.kind = static_cast<uint8_t>(kind);
  record.thread = head.thread;
  return record;
}

// Writes one event: head.grid_blocks words and head.block_threads bytes of text. `next` returns the
// place of the next record.
template <class Next>
void write_event(const shm::Record& head, const uint64_t* words, const char* text, Next next) {
  next() = head;
  const auto write = [&](shm::RecordKind kind, const void* from, uint32_t bytes) {
    shm::Record& record = next() = continuation(kind, head);
    std::memcpy(payload(record), from, bytes < kTextARecord ? bytes : kTextARecord);
  };
  for (uint32_t at = 0; at < head.grid_blocks; at += kWordsARecord)
    write(shm::RecordKind::kWords, words + at, 8 * (head.grid_blocks - at));
  for (uint32_t at = 0; at < head.block_threads; at += kTextARecord)
    write(shm::RecordKind::kText, text + at, head.block_threads - at);
}

static_assert(8 * kWordsARecord == kTextARecord);

}  // namespace tandem::trace
