// The conversation on the attach socket: HELLO, WELCOME with three memfds, MAPPED; later PRESENCE.
#pragma once

#include <cstdint>

#include "channel.h"
#include "settings.h"

namespace tandem::shim {

// The outcome of an attempt to attach.
enum class Attachment : uint32_t {
  kNobody,      // there is no daemon, or none that answers in time
  kTurnedAway,  // it refuses this process, or closed the connection at once
  kMade,
};

struct Attached {
  Attachment outcome = Attachment::kNobody;
  Channel* channel = nullptr;  // for kMade; never freed
};

// Connects, shakes hands and maps; unless the outcome is kMade, nothing stays open. Prints once why
// a daemon refuses.
Attached attach_to_daemon(const Settings& settings, const wire::Hello& hello, int timeout_ms);

// Reads what the daemon has sent since the last call, without blocking. False when the connection
// is gone. Sets `any` if there was something.
bool read_messages(Channel& channel, bool* any);

}  // namespace tandem::shim
