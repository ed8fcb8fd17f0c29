// How the GPU says that it has passed a point of a stream: a stream memory operation that writes the
// marker's number into the slot, or, where that cannot be had, an event the helper thread asks about.
// All other functions here need the slot to be owned (slots.h) and make driver calls.
#pragma once

#include "channel.h"

namespace tandem::shim {

// Before anything is submitted: to have host memory registered may wait for the GPU, on which then nothing
// runs that waits for the calling thread. Needs no slot to be owned.
void register_pages(Channel& channel, uint32_t index);
inline void prepare_markers(Channel& channel, uint32_t index) {
  if (__builtin_expect(channel.registered.load(std::memory_order_relaxed) == kNotTried, 0))
    register_pages(channel, index);
}

// Puts marker `value` into the slot's stream. False when the driver did not take it, or the daemon is lost.
bool put_marker(Channel& channel, uint32_t index, uint64_t value);

// Asks about the slot's outstanding events and moves `done` on. True while some are outstanding.
bool poll_events(Channel& channel, uint32_t index);

// The slot is for another stream now, of the context that its events are of or of another one, or for none.
void reuse_events(StreamSlot& slot, bool same_context);

// The events' context is gone.
void forget_events(StreamSlot& slot);

// A context, or all of a device (>= 0), is about to go. If the slot pages are registered there, markers
// that are queued in streams of other contexts would write where nothing is: no more are put there until
// one of the next two, and those that are there are waited for, for a second. The caller owns the slots
// of what goes.
void let_markers_pass(Channel& channel, uint64_t context, int device);
void forget_registration(Channel& channel, uint64_t context, int device);  // it is gone
void go_on_marking(Channel& channel, uint64_t context, int device);        // it is not

}  // namespace tandem::shim
