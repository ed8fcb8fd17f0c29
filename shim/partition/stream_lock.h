// Gives a thread exclusive use of a stream while it adds to it. The holder may be inside the driver
// for long, so waiters sleep, whatever the clock.
//
// Nearly always a single thread adds to a stream, and a locked operation would wait for all that a
// launch has stored before it. So a lock that one thread alone has taken for a while is biased to
// it: from then on that thread takes it with a plain store and a load, and any other thread revokes
// the bias first ("Quickly Reacquirable Locks", Dice, Moir and Scherer 2003; "Eliminating
// Synchronization-Related Atomic Operations with Biased Locking and Bulk Rebiasing", Russell and
// Detlefs 2006).
//
// Rules
// 1. Only the thread that has `held_` writes `owner_`. If there is no owner, having `held_` is
//    having the lock.
// 2. The owner has the lock if it announces that it is in and then still reads that it is the
//    owner.
// 3. To revoke a bias, a thread first writes that there is no owner, then makes every thread pass a
//    barrier, then looks whether the owner is in: either the owner is in, or it will read that it
//    is not the owner. So only the compiler has to keep the owner's store and load in order, not
//    the processor.
// 4. The owner announces that it is in at a place of the thread, not of the lock: so a thread that
//    was interrupted between store and load cannot undo what a later owner announces.
// 5. The release and acquire of `in` or `held_` make a holder's writes visible to the next holder.
//    ThreadSanitizer knows no more than that, and needs no more: the barrier only ensures that
//    there is one holder.
#pragma once

#include <atomic>
#include <cstdint>

#include "bias.h"
#include "thread_state.h"

namespace tandem::shim::partition {

// Not recursive.
class StreamLock {
 public:
  void lock() {
    if (try_biased()) return;
    // Acquire: makes visible what the last holder did with the stream; pairs with the release in
    // unlock.
    if (held_.exchange(true, std::memory_order_acquire)) await_held();
    if (is_biased()) await_owner();
  }
  bool try_lock() { return try_biased() || try_held(); }
  // The same, if the lock is biased to this thread.
  bool try_biased() {
    Owner* self = g_thread.owner;
    if (!self || owner_.load(std::memory_order_relaxed) != self) return false;
    // It has another lock at the moment.
    if (self->in.load(std::memory_order_relaxed) != nullptr) return false;
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
  // Written by the holder of held_:
  uint32_t runs_ = 0;                  // how often in a row `last_` took it without a bias
  const ThreadState* last_ = nullptr;  // may be a thread that has ended since; only compared
};

}  // namespace tandem::shim::partition
