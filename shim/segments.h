// Work between two markers of a stream: counted as it is submitted, closed by a marker.
#pragma once

#include <cstdint>

#include "channel.h"

namespace tandem::shim {

inline constexpr uint64_t kMinSegmentNs = 10'000;
inline constexpr uint64_t kMaxSegmentNs = 100'000'000;
inline constexpr uint64_t kDefaultSegmentNs = 100'000;

uint64_t segment_ns(const Channel& channel);

// One submission of about est_ns was taken by the driver. Returns the open segment's estimate.
uint64_t add_to_segment(Channel& channel, uint32_t index, uint64_t est_ns, uint64_t now_ns);

// Puts a marker behind what the slot has open. Does nothing when nothing is open, when another
// thread is at it, or where a marker is not allowed now.
void close_segment(Channel& channel, uint32_t index);

// Before the caller blocks or asks: what is open everywhere, so that its completion will be seen.
void close_open_segments(Channel& channel);

// The context was just synchronised: what it had open before (`open_before`, one a slot) has ended.
void settle_context(Channel& channel, uint64_t context, const uint64_t* open_before);
void snapshot_open(const Channel& channel, uint64_t* open);

// No live slot has work the GPU has not finished.
bool all_idle(const Channel& channel);

}  // namespace tandem::shim
