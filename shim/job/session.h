// The connection to the daemon: OFF -> ON -> LOST -> ON again. While it is not ON, the process is
// ungated, and silent except for the reason why a daemon refuses it. It begins at the first call
// that needs a context, never earlier.
#pragma once

#include <cuda.h>

#include <atomic>

#include "always_inline.h"
#include "attach.h"
#include "channel.h"
#include "settings.h"

namespace tandem::shim {

enum class SessionState : uint32_t { kFresh, kStarting, kStarted, kOff };

extern std::atomic<SessionState> g_session;  // release when it changes; acquire by all readers
extern Settings g_settings;                  // written while kStarting, constant afterwards

// First use in this process: settings, clock, fork handlers, one attempt to attach, helper thread.
// `start_session` does nothing while the thread has no context; `start_session_on` needs only a
// device.
void start_session();
void start_session_on(CUdevice device);

// Makes one attempt to attach, with a deadline in real time, and publishes the channel. Called by
// the starting thread, afterwards by the helper only.
Attachment attach(int timeout_ms);

// The daemon is gone: unpublishes the channel and releases its waiters. Helper thread.
void lose_channel();

// The channel, or null while unmanaged. The first caller that has a context attaches.
ALWAYS_INLINE Channel* managed_channel() {
  Channel* channel = g_channel.load(std::memory_order_acquire);
  if (__builtin_expect(channel != nullptr, 1)) return channel;
  if (g_session.load(std::memory_order_acquire) == SessionState::kFresh) {
    start_session();
    return g_channel.load(std::memory_order_acquire);
  }
  return nullptr;
}

}  // namespace tandem::shim
