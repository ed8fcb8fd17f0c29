#include "mark_limit.h"

#include "wait.h"

namespace tandem::shim {

void stop_at_limit(Channel& channel, shm::LimitKind kind, uint64_t number) {
  // Relaxed: after storing it, the daemon waits for what is reported here.
  const uint64_t limit = channel.command->gate.mark_limit.load(std::memory_order_relaxed);
  if (__builtin_expect(limit == 0, 1)) return;
  if (shm::kind_of(limit) != kind || number < shm::number_of(limit)) return;
  if (channel.observe.load(std::memory_order_relaxed)) return;
  std::atomic<uint64_t>& stopped = channel.state->iterations.stopped[static_cast<uint32_t>(kind)];
  uint64_t known = stopped.load(std::memory_order_relaxed);
  // Two threads may mark at the same time. Release, after the figures of the iteration; pairs with
  // the daemon's acquire.
  while (known < number && !stopped.compare_exchange_weak(known, number, std::memory_order_release,
                                                          std::memory_order_relaxed)) {
  }
  std::atomic<uint32_t>& doorbell = channel.state->control.doorbell;
  doorbell.fetch_add(1, std::memory_order_release);
  futex_wake_all(doorbell);
}

}  // namespace tandem::shim
