// The one thread of ours in an attached process: owns the socket, re-attaches, closes segments of
// quiet streams, reads timing events, brings presence down, stamps its tick. Detached, all signals
// blocked, RELAXED capture mode.
#pragma once

#include <atomic>

namespace tandem::shim {

// False when the thread could not be made; the process then stays as it is.
bool start_helper();

// Something was submitted: a sleeping helper must look after it. A load while it is awake.
void wake_helper_now();
extern std::atomic<bool> g_helper_sleeps;  // helper: seq_cst; submitters: relaxed, a hint
inline void wake_helper() {
  if (__builtin_expect(g_helper_sleeps.load(std::memory_order_relaxed), 0)) wake_helper_now();
}

// Exit: the helper makes no driver call any more when this returns, or 50 ms have passed.
void stop_helper();

// Fork, in the child: there is no helper.
void forget_helper();

}  // namespace tandem::shim
