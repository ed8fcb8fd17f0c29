// Finds or makes the slot of a (context, stream).
#pragma once

#include <cuda.h>

#include <cstdint>

#include "channel.h"

namespace tandem::shim {

inline constexpr uint64_t kLegacyStream = 1;
inline constexpr uint64_t kPerThreadStream = 2;

// One number for the two ways to name a default stream.
inline uint64_t normalise(CUstream stream, bool per_thread) {
  const auto handle = reinterpret_cast<uint64_t>(stream);
  if (handle) return handle;
  return per_thread ? kPerThreadStream : kLegacyStream;
}
inline bool is_default_stream(uint64_t stream) { return stream <= kPerThreadStream; }
inline CUstream as_stream(uint64_t stream) { return reinterpret_cast<CUstream>(stream); }

// The calling thread's slot for `stream` (normalised); kNoSlot when all are taken, when there is no
// context, or when another thread is making one right now.
uint32_t slot_of(Channel& channel, uint64_t stream);

// Tries to own the slot's private fields. The owner is short: one or two driver calls.
bool try_own(StreamSlot& slot);
void disown(StreamSlot& slot);
// As try_own, but tries for up to 10 ms; for those who are about to destroy the stream.
bool own_soon(StreamSlot& slot);

// The stream is gone: its slot can be made again once its work is done. Caller owns the slot.
void retire(Channel& channel, uint32_t index);

uint32_t slot_end(const Channel& channel);
bool is_live(const StreamSlot& slot);

}  // namespace tandem::shim
