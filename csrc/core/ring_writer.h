// One thread's telemetry ring: claims one of the sixteen, or the shared last one, and writes records.
// No heap and no locked operation on the write path of a thread that has a ring of its own.
#pragma once

#include <atomic>
#include <cstdint>

#include "always_inline.h"
#include "shm_layout.h"

namespace tandem {

class RingWriter {
 public:
  // Claims a free ring of `state`; tid is the calling thread's. The mapping outlives the writer.
  void claim(shm::StatePage* state, uint32_t tid);

  // Gives the ring back for another thread to continue. Thread exit.
  void release();

  // Records of this thread so far; of the shared ring 0.
  [[nodiscard]] uint64_t written() const { return shared_ ? 0 : head_; }

  [[nodiscard]] bool belongs_to(const shm::StatePage* state) const { return state_ == state; }

  void put(const shm::Record& record) {
    fill([&record](shm::Record& place) { place = record; });
  }

  // Lets `write` fill the next record, every field of it, where it stays: one made elsewhere and
  // copied costs as much as the rest of a launch.
  template <class Write>
  ALWAYS_INLINE void fill(Write write) {
    if (__builtin_expect(shared_, 0)) {
      shm::Record record;
      write(record);
      put_shared(record);
      return;
    }
    write(records_[head_ % shm::kRingRecords]);
    header_->head.store(++head_, std::memory_order_release);  // daemon: acquire
    prefetch(&records_[head_ % shm::kRingRecords]);
  }

 private:
  // The next record's line is on the daemon's CPU, which read it a round ago. It is asked for while the
  // program goes on: a driver's write to the card waits for every store before it. What the builtin
  // makes of it without -mprfchw only reads the line; CPUs that do not know the instruction skip it.
  ALWAYS_INLINE static void prefetch(const shm::Record* next) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*next));
#else
    __builtin_prefetch(next, 1);
#endif
  }

  void put_shared(const shm::Record& record);

  shm::StatePage* state_ = nullptr;
  shm::RingHeader* header_ = nullptr;
  shm::Record* records_ = nullptr;
  uint64_t head_ = 0;
  bool shared_ = false;
};

// A fork may have left the shared ring's lock taken by a thread that does not exist any more.
void reset_shared_ring_lock();

}  // namespace tandem
