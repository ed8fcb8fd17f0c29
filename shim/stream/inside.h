// Who is inside the driver, and with which stream. A queue that is full keeps whoever adds to it until the GPU
// gets on, and may keep who adds to other streams of that context, too; what the GPU waits for may be what the
// next thread to come does after it has asked or waited for something. So nothing of ours goes into a stream
// of a context in which somebody is kept.
#pragma once

#include <cstdint>

#include "channel.h"
#include "thread_state.h"

namespace tandem::shim {

// As long as this lives the calling thread adds to the stream of a slot; kNoSlot: to none that is known.
// Plain stores: of two threads that add to one stream the first may go unseen.
class Inside {
 public:
  Inside(Channel* channel, uint32_t slot) {
    if (!channel || slot == kNoSlot) return;
    user_ = &channel->streams[slot].user;
    call_ = uint64_t{thread_id()} << 32 | g_thread.calls++ << 1 | 1u;
    user_->store(call_, std::memory_order_relaxed);
  }
  ~Inside() {
    if (user_ && user_->load(std::memory_order_relaxed) == call_)
      user_->store(call_ & ~uint64_t{1}, std::memory_order_relaxed);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  std::atomic<uint64_t>* user_ = nullptr;
  uint64_t call_ = 0;
};

// The calling thread is the last that added to the stream.
inline bool is_used_by_me(const StreamSlot& slot) {
  return slot.user.load(std::memory_order_relaxed) >> 32 == thread_id();
}

// Some thread is inside now, with this very stream.
inline bool is_anyone_inside(const StreamSlot& slot) {
  return (slot.user.load(std::memory_order_relaxed) & 1) != 0;
}

// Another than the calling one is, with a stream of the context.
bool others_are_inside(const Channel& channel, uint64_t context);

// For the helper, which comes again: a thread that it finds in the same call as in its last round is kept there.
void look_who_is_kept(Channel& channel);
bool is_anyone_kept(const Channel& channel, uint64_t context);

}  // namespace tandem::shim
