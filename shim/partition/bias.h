// The threads to which locks may be biased, see stream_lock.h.
#pragma once

#include <atomic>
#include <cstdint>

namespace tandem::shim::partition {

class StreamLock;

// Belongs to a living thread, or to none. Never freed: a thread that revokes a bias looks here even
// while the owner may be ending. A thread that takes over the place of an ended one inherits all
// the locks biased to that place.
struct alignas(64) Owner {
  // The lock that the thread holds by bias, or tries to take; written by that thread. Release, see
  // revoke.
  std::atomic<const StreamLock*> in;
  std::atomic<bool> is_taken;  // acquire by the thread that takes it, release by the one that ends
};

enum class Biases : uint8_t { kUnknown, kAllowed, kForbidden };
// Relaxed: a thread that reads kAllowed runs later than the registration, which is all that it
// needs.
extern std::atomic<Biases> g_biases;

// Helper, each round: on the first call, asks the kernel for what revoking a bias needs. Until
// then, and where the kernel refuses, no lock is biased.
void allow_biases();
inline bool are_biases_allowed() {
  return g_biases.load(std::memory_order_relaxed) == Biases::kAllowed;
}
void forbid_biases();

// The calling thread's owner, until it ends; null: there are more threads than places.
Owner* claim_owner();
void release_owner();  // the thread ends

void forget_owners();  // in a forked child

}  // namespace tandem::shim::partition
