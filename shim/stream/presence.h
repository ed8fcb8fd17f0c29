// What a latency-class process shows its peers: until when it is busy.
#pragma once

#include <cstdint>

#include "always_inline.h"
#include "channel.h"

namespace tandem::shim {

inline bool is_latency_class(const Channel& channel) {
  return channel.command->gate.job_class.load(std::memory_order_relaxed) ==
         static_cast<uint32_t>(shm::JobClass::kLatency);
}

// Work was submitted: moves the end of presence far ahead. At most one store, and only when the
// word has to move.
void move_busy_ahead(Channel& channel, uint64_t now_ns);
ALWAYS_INLINE void show_busy(Channel& channel, uint64_t now_ns) {
  if (is_latency_class(channel)) move_busy_ahead(channel, now_ns);
}

// Decides how long presence lasts after the last work: as long as the daemon says or, where the
// gaps between this process's requests call for it, longer, up to what the daemon allows. Helper
// thread, every round.
void tune_linger(Channel& channel);

// If nothing is outstanding and no request runs: sets busy until now + linger, and wakes waiting
// peers so that they see the new end. Called when a synchronisation returns, and by the helper
// thread.
void show_idle_if_so(Channel& channel, uint64_t now_ns);

// tandem_mark_v1: a request began (+1) or ended (-1) somewhere in the process.
void count_request(Channel* channel, int change);
void forget_requests();  // in a forked child: there, requests of other threads never end

}  // namespace tandem::shim
