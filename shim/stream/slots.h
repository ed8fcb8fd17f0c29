// Finds or makes the slot of a (context, stream).
#pragma once

#include <cuda.h>

#include <cstdint>

#include "always_inline.h"
#include "channel.h"
#include "faults.h"
#include "thread_state.h"

namespace tandem::shim {

inline constexpr uint64_t kLegacyStream = 1;
inline constexpr uint64_t kPerThreadStream = 2;

// Maps the two ways to name a default stream to one number.
inline uint64_t normalise(CUstream stream, bool per_thread) {
  const auto handle = reinterpret_cast<uint64_t>(stream);
  if (handle) return handle;
  return per_thread && !planted(Fault::kRecordInLegacy) ? kPerThreadStream : kLegacyStream;
}
inline bool is_default_stream(uint64_t stream) { return stream <= kPerThreadStream; }
inline CUstream as_stream(uint64_t stream) { return reinterpret_cast<CUstream>(stream); }

// The calling thread's context, 0 for none.
uint64_t current_context();

// For the helper, which has no context of its own: events are queried in their own context.
void make_current(uint64_t context);

// The calling thread's slot for `stream` (normalised); kNoSlot when all are taken, when there is no
// context, or when another thread is making one right now.
uint32_t look_up_slot(Channel& channel, uint64_t stream);
// The existing slot, else kNoSlot.
uint32_t find_slot(const Channel& channel, uint64_t stream);
// Like look_up_slot, but does not change which slot the thread's next submission tries first.
uint32_t slot_beside(Channel& channel, uint64_t stream);
ALWAYS_INLINE uint32_t slot_of(Channel& channel, uint64_t stream) {
  // Nearly always the slot of the thread's last submission. A default stream is excluded: it
  // belongs to the current context, which has to be asked for.
  const ThreadState& thread = g_thread;
  const uint32_t attachment = channel.attachment.load(std::memory_order_relaxed);
  if (__builtin_expect(
          !is_default_stream(stream) && thread.attachment == attachment &&
              thread.stream == stream && thread.slot != kNoSlot &&
              channel.streams[thread.slot].stream.load(std::memory_order_acquire) == stream,
          1)) {
    return thread.slot;
  }
  return look_up_slot(channel, stream);
}

// Tries to own the slot's private fields. Owners keep them briefly, for one or two driver calls.
bool try_own(StreamSlot& slot);
void disown(StreamSlot& slot);
// Like try_own, but tries for up to a second: for calls after which nobody may be inside the driver
// with the stream.
bool own_soon(StreamSlot& slot);
// The same for a caller that destroys the stream or its context: even if the destruction fails, the
// helper does nothing more with the stream.
bool own_to_end(StreamSlot& slot);

// Owns the slot of a stream (normalised), if it has one, for its lifetime: nobody else puts a
// marker into the stream meanwhile. For calls after which a marker would become part of a capture.
class OwnedStream {
 public:
  OwnedStream(Channel* channel, uint64_t stream);
  ~OwnedStream();
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;

  [[nodiscard]] uint32_t slot() const { return slot_; }  // kNoSlot: none

 private:
  Channel* channel_;
  uint32_t slot_ = kNoSlot;
};

// Owns the slots of all legacy streams except one that the caller already owns. For the start of a
// capture: from then on, whatever is put into a legacy stream, even a marker, ends the capture.
class OwnedLegacyStreams {
 public:
  OwnedLegacyStreams(Channel* channel, uint32_t owned);
  ~OwnedLegacyStreams();
  OwnedLegacyStreams(const OwnedLegacyStreams&) = delete;
  OwnedLegacyStreams& operator=(const OwnedLegacyStreams&) = delete;

 private:
  Channel* channel_;
  bool owned_[shm::kSlotCount] = {};
};

// The stream is gone: its slot can be reused once its work is done. The caller owns the slot.
void retire(Channel& channel, uint32_t index);

// Retires every per-thread default stream of the calling thread, which is ending.
void retire_slots_of_thread(Channel& channel);

// Whether a thread other than the submitting one may put a marker into the stream later.
inline bool is_for_others(const StreamSlot& slot, uint64_t stream) {
  return stream != kPerThreadStream && !slot.green.load(std::memory_order_relaxed);
}

uint32_t slot_end(const Channel& channel);
bool is_live(const StreamSlot& slot);

// Whether something in a context of a device goes away with `context` or, if `device` >= 0, with
// all of `device`.
inline bool goes_with(uint64_t context, int device, uint64_t its_context, uint32_t its_device) {
  if (device < 0) return its_context == context;
  return its_context != 0 && its_device == static_cast<uint32_t>(device);
}
inline bool goes_with(uint64_t context, int device, const StreamSlot& slot) {
  return goes_with(context, device, slot.context.load(std::memory_order_relaxed),
                   slot.device.load(std::memory_order_relaxed));
}

}  // namespace tandem::shim
