#include "stream_lock.h"

#include <unistd.h>

#include "channel.h"
#include "heavy_barrier.h"
#include "wait.h"

namespace tandem::shim::partition {
namespace {

constexpr uint32_t kSpins = 200;
constexpr uint32_t kSleepUs = 20;
// A bias is given when the locked operations that it saves have cost as much as revoking it will,
// some us: so whatever the pattern of turns, the cost is never more than twice that of the better
// choice.
constexpr uint32_t kRunsBeforeBias = 256;
// By then every processor's stores are visible to the others.
constexpr uint32_t kDrainUs = 1000;

template <class Condition>
void wait_until(Condition holds) {
  for (uint32_t spins = 0; !holds(); ++spins) {
    if (spins < kSpins) cpu_pause();
    // On the virtual clock a waiting thread must announce its wait, or no time passes for the
    // holder either.
    else if (g_clock.is_virtual()) g_clock.sleep_until_ns(g_clock.now_ns() + kSleepUs * 1000);
    else usleep(kSleepUs);
  }
}

}  // namespace

// Acquire: once the owner is out, what it did with the stream is visible; pairs with the release in
// unlock.
bool StreamLock::is_inside(const Owner* owner) const {
  return owner->in.load(std::memory_order_acquire) == this;
}

// The caller has held_. Returns the owner, which may still be inside.
Owner* StreamLock::revoke() {
  Owner* owner = owner_.load(std::memory_order_relaxed);
  owner_.store(nullptr, std::memory_order_relaxed);
  if (!heavy_barrier()) {
    forbid_biases();
    usleep(kDrainUs);
  }
  return owner;
}

__attribute__((cold, noinline)) void StreamLock::await_held() {
  wait_until([this] {
    return !held_.load(std::memory_order_relaxed) &&
           !held_.exchange(true, std::memory_order_acquire);
  });
}

__attribute__((cold, noinline)) void StreamLock::await_owner() {
  const Owner* owner = revoke();
  wait_until([&] { return !is_inside(owner); });
}

__attribute__((cold, noinline)) bool StreamLock::try_held() {
  const Owner* owner = owner_.load(std::memory_order_relaxed);
  if (owner && is_inside(owner)) return false;  // nothing is gained by revoking a bias in use
  if (held_.exchange(true, std::memory_order_acquire)) return false;
  if (!is_biased()) return true;
  Owner* revoked = revoke();
  if (!is_inside(revoked)) return true;
  owner_.store(revoked, std::memory_order_relaxed);
  held_.store(false, std::memory_order_release);
  return false;
}

// The caller has held_, without a bias.
__attribute__((cold, noinline)) void StreamLock::consider_bias() {
  runs_ = last_ == &g_thread ? runs_ + 1 : 0;
  last_ = &g_thread;
  if (runs_ < kRunsBeforeBias) return;
  runs_ = 0;
  owner_.store(claim_owner(), std::memory_order_relaxed);
}

void StreamLock::start_afresh() {
  owner_.store(nullptr, std::memory_order_relaxed);
  held_.store(false, std::memory_order_relaxed);
  runs_ = 0;
  last_ = nullptr;
}

}  // namespace tandem::shim::partition
