// Segments: the work between two markers of a stream, counted as it is submitted and closed by a
// marker.
#pragma once

#include <algorithm>
#include <cstdint>

#include "always_inline.h"
#include "channel.h"

namespace tandem::shim {

inline constexpr uint64_t kMinSegmentNs = 10'000;
inline constexpr uint64_t kMaxSegmentNs = 100'000'000;
inline constexpr uint64_t kDefaultSegmentNs = 100'000;

ALWAYS_INLINE uint64_t segment_ns(const Channel& channel) {
  const uint64_t wanted = channel.command->gate.segment_ns.load(std::memory_order_relaxed);
  return wanted ? std::clamp(wanted, kMinSegmentNs, kMaxSegmentNs) : kDefaultSegmentNs;
}

// Adds a submission of about est_ns that the driver took. Returns the open segment's estimate.
// Plain stores: two threads that share a stream may lose one of each other's counts, but never all
// of them, and the next marker corrects it.
ALWAYS_INLINE uint64_t add_to_segment(Channel& channel, uint32_t index, uint64_t est_ns,
                                      uint64_t now_ns) {
  shm::Slot& slot = channel.slots[index];
  const uint64_t est = slot.open_est_ns.load(std::memory_order_relaxed) + est_ns;
  slot.open.store(slot.open.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  slot.open_est_ns.store(est, std::memory_order_relaxed);
  slot.last_submit_ns.store(now_ns, std::memory_order_relaxed);
  return est;
}

// Puts a marker behind what the slot has open. Does nothing when nothing is open, when another
// thread is doing it, or where a marker is not allowed now.
void close_segment(Channel& channel, uint32_t index);
// The same for a caller that owns the slot.
void close_owned_segment(Channel& channel, uint32_t index);

// A marker in the legacy stream waits for every blocking stream of its context, and holds them all
// back. So it is right only directly behind the stream's own work: once another stream has gone on
// and is still busy, the marker would order what the program left unordered, up to a deadlock.
bool others_went_on(const Channel& channel, uint32_t index);

// Replaces a marker that is not allowed: asks the driver whether all of the stream's work has
// ended. The stream's context is current, and the caller owns the slot. Does nothing while
// something captures: most threads may not ask then.
void settle_owned(Channel& channel, uint32_t index);

// Like close_owned_segment, but queries instead where a thread is kept in the driver. For callers
// that have not just submitted the work themselves.
void close_or_settle_owned(Channel& channel, uint32_t index);

// Closes segments so that their completion will be seen: all open ones before the caller blocks,
// its own before it queries. The helper closes the rest a little later, including those where
// others are inside the driver.
void close_open_segments(Channel& channel);
void close_own_segments(Channel& channel);

// The context was just synchronised: what it had open before (`open_before`, one per slot) has
// ended.
void settle_context(Channel& channel, uint64_t context, const uint64_t* open_before);
void snapshot_open(const Channel& channel, uint64_t* open);

// No live slot has work that the GPU has not finished.
bool all_idle(const Channel& channel);

}  // namespace tandem::shim
