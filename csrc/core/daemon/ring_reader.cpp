#include "daemon/ring_reader.h"

#include <algorithm>

namespace tandem::daemon {
namespace {

// No job writes four billion records between two polls: such a head is garbage.
constexpr uint64_t kPlausibleStep = uint64_t{1} << 32;

// Copies word by word, since the writer may be writing. Acquire, so that the head loaded afterwards
// is at least as new as anything copied here; pairs with the writer's stores of the words. Free on
// x86.
void copy_record(const shm::Record* from, shm::Record* to) {
  constexpr size_t kWords = sizeof(shm::Record) / sizeof(uint64_t);
  const auto* source = reinterpret_cast<const uint64_t*>(from);
  uint64_t words[kWords];
  for (size_t i = 0; i < kWords; ++i) words[i] = __atomic_load_n(source + i, __ATOMIC_ACQUIRE);
  __builtin_memcpy(to, words, sizeof(words));
}

}  // namespace

bool is_telemetry(const shm::Record& record) {
  return record.kind > 0 && record.kind < shm::kRecordKindCount;
}

size_t torn_records(uint64_t tail, size_t count, uint64_t head, uint64_t after,
                    size_t ring_records) {
  if (after < head) return count;  // went back: nothing here can be trusted
  const uint64_t first_intact = after > ring_records - 1 ? after - (ring_records - 1) : 0;
  return first_intact > tail ? static_cast<size_t>(std::min<uint64_t>(first_intact - tail, count))
                             : 0;
}

uint64_t RingReader::synchronise(uint64_t head) {
  const uint64_t waiting = head - tail_;  // a head that went back makes it huge
  if (waiting > kPlausibleStep) {
    tail_ = head;
    return 1;  // the number is unknown
  }
  const uint64_t most = ring_records_ - 1;
  if (waiting <= most) return 0;
  tail_ = head - most;
  return waiting - most;
}

void RingReader::skip(const shm::RingHeader& header) {
  tail_ = header.head.load(std::memory_order_acquire);
}

RingReader::Result RingReader::read(const shm::RingHeader& header, const shm::Record* ring,
                                    shm::Record* out, size_t room) {
  // Pairs with the release store after the record was filled.
  const uint64_t head = header.head.load(std::memory_order_acquire);
  Result result;
  result.dropped = synchronise(head);
  const auto count = static_cast<size_t>(std::min<uint64_t>(head - tail_, room));
  for (size_t i = 0; i < count; ++i) {
    copy_record(ring + (tail_ + i) % ring_records_, out + i);
  }
  // The acquire loads order this load after the copies.
  const uint64_t after = header.head.load(std::memory_order_relaxed);
  const size_t torn = torn_records(tail_, count, head, after, ring_records_);
  shm::Record* const kept = std::copy_if(out + torn, out + count, out, is_record_);
  result.copied = static_cast<size_t>(kept - out);
  result.dropped += count - result.copied;
  tail_ += count;
  return result;
}

}  // namespace tandem::daemon
