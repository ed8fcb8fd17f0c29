#include "ring_writer.h"

#include "wait.h"

namespace tandem {
namespace {

// Serialises the writers of the shared ring within this process; never held across a call. Lossy: a
// writer that does not get it quickly drops its record.
std::atomic<bool> g_shared_lock{false};
constexpr int kLockTries = 200;

bool take_shared_lock() {
  for (int i = 0; i < kLockTries; ++i) {
    // acquire: sees the head that the previous holder stored; pairs with the release in put_shared.
    if (!g_shared_lock.exchange(true, std::memory_order_acquire)) return true;
    cpu_pause();
  }
  return false;
}

char* base(shm::StatePage* state) { return reinterpret_cast<char*>(state); }

}  // namespace

void reset_shared_ring_lock() { g_shared_lock.store(false, std::memory_order_release); }

void RingWriter::claim(shm::StatePage* state, uint32_t tid) {
  auto* headers = reinterpret_cast<shm::RingHeader*>(base(state) + shm::kRingHeadersOffset);
  uint32_t index = 0;
  for (; index < shm::kThreadRingCount; ++index) {
    uint32_t unused = 0;
    // acquire: continues at the head that the previous owner stored; pairs with release().
    if (headers[index].owner.compare_exchange_strong(unused, tid, std::memory_order_acquire)) break;
  }
  shared_ = index == shm::kThreadRingCount;
  if (shared_) headers[index].owner.store(1, std::memory_order_relaxed);
  state_ = state;
  header_ = &headers[index];
  records_ = reinterpret_cast<shm::Record*>(base(state) + shm::kRingsOffset +
                                            size_t{index} * shm::kRingBytes);
  head_ = header_->head.load(std::memory_order_relaxed);
}

void RingWriter::release() {
  if (header_ && !shared_) header_->owner.store(0, std::memory_order_release);
  *this = RingWriter{};
}

void RingWriter::put_shared(const shm::Record& record) {
  if (!take_shared_lock()) return;
  const uint64_t head = header_->head.load(std::memory_order_relaxed);
  records_[head % shm::kRingRecords] = record;
  header_->head.store(head + 1, std::memory_order_release);  // daemon: acquire
  g_shared_lock.store(false, std::memory_order_release);
}

}  // namespace tandem
