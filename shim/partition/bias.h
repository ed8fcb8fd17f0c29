// The threads that locks may be biased to, see stream_lock.h.
#pragma once

#include <atomic>
#include <cstdint>

namespace tandem::shim::partition {

class StreamLock;

// One of a living thread, or of none. Never freed: who takes a bias away looks here while the thread may be
// ending. A thread that takes over the place of one that has ended has all that was biased to that.
struct alignas(64) Owner {
  std::atomic<const StreamLock*> in;  // that it has by bias, or tries; the thread's. Release, see revoke
  std::atomic<bool> is_taken;         // acquire by who takes it, release by who ends
};

enum class Biases : uint8_t { kUnknown, kAllowed, kForbidden };
// Relaxed: who reads kAllowed comes after the registration in time, which is all that it needs.
extern std::atomic<Biases> g_biases;

// Helper, each round: the first time, asks the kernel for what taking a bias away needs. Until then, and
// where that is refused, no lock is biased.
void allow_biases();
inline bool are_biases_allowed() { return g_biases.load(std::memory_order_relaxed) == Biases::kAllowed; }
void forbid_biases();

// The calling thread's, until it ends; null: there are more threads than places.
Owner* claim_owner();
void release_owner();  // the thread ends

void forget_owners();  // in a forked child

}  // namespace tandem::shim::partition
