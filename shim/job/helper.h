// The shim's one thread in an attached process. It owns the socket, re-attaches, closes segments of
// quiet streams, reads timing events, lowers presence, and stamps its tick. It is detached, blocks
// all signals and uses the RELAXED capture mode.
#pragma once

#include <atomic>

namespace tandem::shim {

// False when the thread could not be created; the process then stays as it is.
bool start_helper();

// Something was submitted, so a sleeping helper must attend to it. Costs one load while the helper
// is awake.
void wake_helper_now();
extern std::atomic<bool> g_helper_sleeps;  // helper: seq_cst; submitters: relaxed, a hint
inline void wake_helper() {
  if (__builtin_expect(g_helper_sleeps.load(std::memory_order_relaxed), 0)) wake_helper_now();
}

// At exit: once this returns, the helper makes no more driver calls, or one second has passed.
void stop_helper();

// In a forked child, which has no helper.
void forget_helper();

}  // namespace tandem::shim
