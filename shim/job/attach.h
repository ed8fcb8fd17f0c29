// The attach socket's conversation: HELLO, WELCOME with three memfds, MAPPED; later PRESENCE.
#pragma once

#include <cstdint>

#include "channel.h"
#include "settings.h"

namespace tandem::shim {

// Connects, shakes hands and maps. Null when nobody answers in time, or not properly; then nothing
// is left open. The channel is from mmap and is never freed.
Channel* attach_to_daemon(const Settings& settings, const wire::Hello& hello, int timeout_ms);

// Reads what the daemon has sent since, without blocking. False when the connection is gone.
bool read_messages(Channel& channel);

}  // namespace tandem::shim
