// Tracks which thread is inside the driver, and with which stream. A full queue keeps whoever adds
// to it until the GPU makes progress, and may also keep threads that add to other streams of that
// context; and the GPU may be waiting for something that the next thread does only after it has
// queried or waited. So the shim puts nothing into a stream of a context in which a thread is kept.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "always_inline.h"
#include "channel.h"
#include "thread_state.h"

namespace tandem::shim {

// While this lives, the calling thread adds to a stream; kNoSlot: to none that is known. Plain
// stores: of two threads that add to one stream, the first may go unseen.
class Inside {
 public:
  ALWAYS_INLINE Inside(Channel* channel, uint32_t slot) {
    if (channel && slot != kNoSlot) begin(channel->streams[slot]);
  }
  // For a call named by its handle, where nothing else announces it.
  ALWAYS_INLINE Inside(CUstream handle, bool per_thread) {
    if (__builtin_expect(g_thread.is_inside, 1) || !g_channel.load(std::memory_order_relaxed))
      return;
    if (StreamSlot* slot = slot_of_handle(handle, per_thread)) begin(*slot);
  }
  ALWAYS_INLINE ~Inside() {
    if (!slot_) return;
    if (slot_->inside.load(std::memory_order_relaxed) == call_)
      slot_->inside.store(0, std::memory_order_relaxed);
    g_thread.is_inside = was_inside_;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  ALWAYS_INLINE void begin(StreamSlot& slot) {
    slot_ = &slot;
    was_inside_ = g_thread.is_inside;
    g_thread.is_inside = true;
    call_ = uint64_t{thread_id()} << 32 | ++g_thread.calls;
    slot.inside.store(call_, std::memory_order_relaxed);
  }
  static StreamSlot* slot_of_handle(CUstream handle, bool per_thread);  // null: none that is known

  StreamSlot* slot_ = nullptr;
  uint64_t call_ = 0;
  bool was_inside_ = false;
};

inline bool is_anyone_inside(const StreamSlot& slot) {
  return slot.inside.load(std::memory_order_relaxed) != 0;
}

// Whether another thread is inside with a stream of the context, even if only for a moment.
bool others_are_inside(const Channel& channel, uint64_t context);
// Whether another thread is in a call that takes long: watches for some microseconds whether each
// makes progress.
bool is_anyone_kept(const Channel& channel, uint64_t context);

// The contexts that other threads are inside with, for callers that look at many slots.
class OthersInside {
 public:
  explicit OthersInside(const Channel& channel);
  [[nodiscard]] bool are_in(uint64_t context) const;

 private:
  static constexpr uint32_t kMost = 8;
  uint64_t contexts_[kMost];
  uint32_t count_ = 0;
  bool are_many_ = false;  // more than can be noted, so assume any
};

}  // namespace tandem::shim
