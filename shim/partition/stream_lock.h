// Who adds to a stream has it to itself. Its holder may be inside the driver for long, so who waits sleeps,
// on whatever clock there is.
//
// Nearly always one thread adds to a stream, and a locked operation would wait for all that a launch has
// stored before. So a lock that one thread alone has taken for a while is biased to it: from then on that
// thread takes it by a plain store and a load, and anybody else takes the bias away first ("Quickly
// Reacquirable Locks", Dice, Moir and Scherer 2003; "Eliminating Synchronization-Related Atomic Operations
// with Biased Locking and Bulk Rebiasing", Russell and Detlefs 2006).
//
// Rules
// 1. `owner_` is written by who has `held_`. With none there, who has `held_` has the lock.
// 2. The owner has the lock if it says that it is in, and after that still reads that it is the owner.
// 3. Who takes a bias away writes first that there is no owner, then makes every thread pass a barrier,
//    then looks whether the owner is in: it is, or will read that it is none. So the owner's store and
//    load need not be kept in order by the processor, only by the compiler.
// 4. Being in is said in a place of the thread's, not of the lock's: a thread that was interrupted between
//    store and load cannot undo what a later owner says.
// 5. What a holder did the next one sees by the release and acquire of `in` or `held_`. ThreadSanitizer knows
//    no more than that, and needs no more: the barrier only makes sure that there is one holder.
#pragma once

#include <atomic>
#include <cstdint>

#include "bias.h"
#include "thread_state.h"

namespace tandem::shim::partition {

// Not to be taken by a thread that has it.
class StreamLock {
 public:
  void lock() {
    if (try_biased()) return;
    // Acquire: what the last holder did with the stream is seen; pairs with the release in unlock.
    if (held_.exchange(true, std::memory_order_acquire)) await_held();
    if (is_biased()) await_owner();
  }
  bool try_lock() { return try_biased() || try_held(); }
  // The same, if the lock is biased to this thread.
  bool try_biased() {
    Owner* self = g_thread.owner;
    if (!self || owner_.load(std::memory_order_relaxed) != self) return false;
    if (self->in.load(std::memory_order_relaxed) != nullptr) return false;  // it has another meanwhile
    self->in.store(this, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // rule 3; no instruction
    if (__builtin_expect(owner_.load(std::memory_order_acquire) == self, 1)) return true;
    self->in.store(nullptr, std::memory_order_release);
    return false;
  }
  void unlock_biased() { g_thread.owner->in.store(nullptr, std::memory_order_release); }
  void unlock() {
    Owner* self = g_thread.owner;
    if (__builtin_expect(self && self->in.load(std::memory_order_relaxed) == this, 1))
      return unlock_biased();
    if (are_biases_allowed()) consider_bias();
    held_.store(false, std::memory_order_release);
  }
  void start_afresh();

  [[nodiscard]] bool is_biased() const { return owner_.load(std::memory_order_relaxed) != nullptr; }

 private:
  bool try_held();
  void await_held();
  void await_owner();
  void consider_bias();
  Owner* revoke();
  bool is_inside(const Owner* owner) const;

  std::atomic<Owner*> owner_{nullptr};
  std::atomic<bool> held_{false};
  // By who has held_:
  uint32_t runs_ = 0;                  // times in a row that `last_` took it without a bias
  const ThreadState* last_ = nullptr;  // perhaps one that has ended since; only compared
};

}  // namespace tandem::shim::partition
