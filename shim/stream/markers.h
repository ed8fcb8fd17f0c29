// How the GPU says that it has passed a point of a stream: a stream memory operation that writes the
// marker's number into the slot, or, where that cannot be had, an event the helper thread asks about.
// All functions here need the slot to be owned (slots.h) and make driver calls.
#pragma once

#include "channel.h"

namespace tandem::shim {

// Puts marker `value` into the slot's stream. False when the driver did not take it.
bool put_marker(Channel& channel, uint32_t index, uint64_t value);

// Asks about the slot's outstanding events and moves `done` on. True while some are outstanding.
bool poll_events(Channel& channel, uint32_t index);

// The events' context is gone, or the slot is new.
void forget_events(StreamSlot& slot);

// The context that held the registration of the slot pages is about to go.
void forget_registration(Channel& channel, uint64_t context);

}  // namespace tandem::shim
