#include "bias.h"

#include "heavy_barrier.h"
#include "streams.h"
#include "thread_state.h"

namespace tandem::shim::partition {

std::atomic<Biases> g_biases{Biases::kUnknown};

namespace {

constexpr int kOwners = 64;
Owner g_owners[kOwners];

}  // namespace

void allow_biases() {
  if (!is_on() || g_biases.load(std::memory_order_relaxed) != Biases::kUnknown) return;
  g_biases.store(register_heavy_barrier() ? Biases::kAllowed : Biases::kForbidden,
                 std::memory_order_relaxed);
}

void forbid_biases() { g_biases.store(Biases::kForbidden, std::memory_order_relaxed); }

Owner* claim_owner() {
  if (g_thread.owner) return g_thread.owner;
  for (Owner& owner : g_owners) {
    if (owner.is_taken.load(std::memory_order_relaxed) ||
        owner.is_taken.exchange(true, std::memory_order_acquire)) {
      continue;
    }
    watch_thread_end();
    return g_thread.owner = &owner;
  }
  return nullptr;
}

void release_owner() {
  Owner* owner = g_thread.owner;
  if (!owner) return;
  g_thread.owner = nullptr;
  // The thread may have been cancelled inside the driver.
  owner->in.store(nullptr, std::memory_order_release);
  owner->is_taken.store(false, std::memory_order_release);
}

void forget_owners() {
  g_biases.store(Biases::kUnknown, std::memory_order_relaxed);
  g_thread.owner = nullptr;
  for (Owner& owner : g_owners) {
    owner.in.store(nullptr, std::memory_order_relaxed);
    owner.is_taken.store(false, std::memory_order_relaxed);
  }
}

}  // namespace tandem::shim::partition
