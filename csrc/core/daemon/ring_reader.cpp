#include "daemon/ring_reader.h"

#include <algorithm>

namespace tandem::daemon {
namespace {

constexpr uint64_t kIntactMax = shm::kRingRecords - 1;
// No job writes four thousand million records between two polls: such a head is garbage.
constexpr uint64_t kPlausibleStep = uint64_t{1} << 32;

// Word by word, for the writer may be at it. Acquire, so that the head read afterwards is at least
// the one before whatever was seen here; matched by the writer's stores of the words. Costs nothing
// on x86.
void copy_record(const shm::Record* from, shm::Record* to) {
  constexpr size_t kWords = sizeof(shm::Record) / sizeof(uint64_t);
  const auto* source = reinterpret_cast<const uint64_t*>(from);
  uint64_t words[kWords];
  for (size_t i = 0; i < kWords; ++i) words[i] = __atomic_load_n(source + i, __ATOMIC_ACQUIRE);
  __builtin_memcpy(to, words, sizeof(words));
}

bool is_record(const shm::Record& record) {
  return record.kind > 0 && record.kind < shm::kRecordKindCount;
}

}  // namespace

size_t torn_records(uint64_t tail, size_t count, uint64_t head, uint64_t after) {
  if (after < head) return count;  // went back: nothing of this is worth anything
  const uint64_t first_intact = after > kIntactMax ? after - kIntactMax : 0;
  return first_intact > tail ? static_cast<size_t>(std::min<uint64_t>(first_intact - tail, count))
                             : 0;
}

uint64_t RingReader::synchronise(uint64_t head) {
  const uint64_t waiting = head - tail_;  // a head that went back makes it huge
  if (waiting > kPlausibleStep) {
    tail_ = head;
    return 1;  // how many is not to be known
  }
  if (waiting <= kIntactMax) return 0;
  tail_ = head - kIntactMax;
  return waiting - kIntactMax;
}

RingReader::Result RingReader::read(const shm::RingHeader& header, const shm::Record* ring,
                                    shm::Record* out, size_t room) {
  // Matched by the release store after the record was filled.
  const uint64_t head = header.head.load(std::memory_order_acquire);
  Result result;
  result.dropped = synchronise(head);
  const auto count = static_cast<size_t>(std::min<uint64_t>(head - tail_, room));
  for (size_t i = 0; i < count; ++i) {
    copy_record(ring + (tail_ + i) % shm::kRingRecords, out + i);
  }
  // Ordered after the copies by their acquire loads.
  const uint64_t after = header.head.load(std::memory_order_relaxed);
  const size_t torn = torn_records(tail_, count, head, after);
  shm::Record* const kept = std::copy_if(out + torn, out + count, out, is_record);
  result.copied = static_cast<size_t>(kept - out);
  result.dropped += count - result.copied;
  tail_ += count;
  return result;
}

}  // namespace tandem::daemon
