// One thread's telemetry ring: claims one of the sixteen rings, or the shared last one, and writes
// records. A thread with a ring of its own writes without heap allocation or locked operation.
#pragma once

#include <atomic>
#include <cstdint>

#include "always_inline.h"
#include "shm_layout.h"

namespace tandem {

class RingWriter {
 public:
  // Claims a free ring of `state`; tid is the calling thread's. The mapping must outlive the
  // writer.
  void claim(shm::StatePage* state, uint32_t tid);

  // Releases the ring, for another thread to continue. Called at thread exit.
  void release();

  // Records written by this thread so far; 0 for the shared ring.
  [[nodiscard]] uint64_t written() const { return shared_ ? 0 : head_; }

  [[nodiscard]] bool belongs_to(const shm::StatePage* state) const { return state_ == state; }

  void put(const shm::Record& record) {
    fill([&record](shm::Record& place) { place = record; });
  }

  // Lets `write` fill every field of the next record in place: building it elsewhere and copying it
  // would cost as much as the rest of a launch.
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
  // The cache line of the next record is on the daemon's CPU, which read it one round ago. The
  // prefetch fetches it while the program goes on, because a driver's write to the card waits for
  // every earlier store. Without -mprfchw the builtin would emit a prefetch for reading; CPUs that
  // do not know prefetchw skip it.
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

// For the child of a fork: a thread that does not exist there may have held the shared ring's lock.
void reset_shared_ring_lock();

}  // namespace tandem
