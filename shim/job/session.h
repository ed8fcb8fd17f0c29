// Connection to the daemon: OFF -> ON -> LOST -> ON again; ungated while not ON, and silent but for the
// reason why a daemon refuses it. Begins at the first call that needs a context, never earlier.
#pragma once

#include <cuda.h>

#include <atomic>

#include "always_inline.h"
#include "attach.h"
#include "channel.h"
#include "settings.h"

namespace tandem::shim {

enum class SessionState : uint32_t { kFresh, kStarting, kStarted, kOff };

extern std::atomic<SessionState> g_session;  // release when it changes; acquire by all
extern Settings g_settings;                  // written while kStarting, constant after

// First use in this process: settings, clock, fork handlers, one attempt to attach, helper thread.
// Nothing happens while the thread has no context; `start_session_on` needs none, only a device.
void start_session();
void start_session_on(CUdevice device);

// One attempt to attach, with a deadline in real time; publishes the channel. Starting thread, then
// only the helper.
Attachment attach(int timeout_ms);

// The daemon is gone: unpublishes the channel and releases its waiters. Helper thread.
void lose_channel();

// The channel, or null while unmanaged. The first caller with a context attaches.
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
