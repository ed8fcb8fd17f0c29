// How the GPU reports that it has passed a point of a stream: a stream memory operation writes the
// marker's number into the slot or, where that is not available, the helper thread queries an
// event. All other functions here need the slot to be owned (slots.h) and make driver calls.
#pragma once

#include "channel.h"

namespace tandem::shim {

// Call before anything is submitted: registering host memory may wait for the GPU, and at this
// point nothing there can be waiting for the calling thread. Needs no slot to be owned.
void register_pages(Channel& channel, uint32_t index);
inline void prepare_markers(Channel& channel, uint32_t index) {
  if (__builtin_expect(channel.registered.load(std::memory_order_relaxed) == kNotTried, 0))
    register_pages(channel, index);
}

// Puts marker `value` into the slot's stream. False when the driver did not take it, or the daemon
// is lost.
bool put_marker(Channel& channel, uint32_t index, uint64_t value);

// Queries the slot's outstanding events and advances `done`. True while some are outstanding.
bool poll_events(Channel& channel, uint32_t index);

// The slot now serves another stream, of the context to which its events belong or of another one,
// or none.
void reuse_events(StreamSlot& slot, bool same_context);

// The events' context is gone.
void forget_events(StreamSlot& slot);

// A context, or all contexts of a device (>= 0), are about to go. If the slot pages are registered
// there, markers queued in streams of other contexts would write to memory that is gone: so no more
// are put there until one of the next two calls, and those already there are waited for, up to a
// second. The caller owns the slots of what goes.
void let_markers_pass(Channel& channel, uint64_t context, int device);
void forget_registration(Channel& channel, uint64_t context, int device);  // it is gone
void go_on_marking(Channel& channel, uint64_t context, int device);        // it is not

}  // namespace tandem::shim
