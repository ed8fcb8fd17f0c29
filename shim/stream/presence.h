// What a latency-class process shows its peers: busy until when.
#pragma once

#include <cstdint>

#include "always_inline.h"
#include "channel.h"

namespace tandem::shim {

inline bool is_latency_class(const Channel& channel) {
  return channel.command->gate.job_class.load(std::memory_order_relaxed) ==
         static_cast<uint32_t>(shm::JobClass::kLatency);
}

// Work was submitted: far ahead. At most one store, and only when the word must move.
void move_busy_ahead(Channel& channel, uint64_t now_ns);
ALWAYS_INLINE void show_busy(Channel& channel, uint64_t now_ns) {
  if (is_latency_class(channel)) move_busy_ahead(channel, now_ns);
}

// Settles how long presence lasts after the last work: what the daemon says, or longer, up to what it
// allows, where the gaps between this process's requests call for it. Helper thread, every round.
void tune_linger(Channel& channel);

// If nothing is outstanding and no request runs: busy until now + linger, and peers that wait are
// woken to see the new end. Sync return and helper thread.
void show_idle_if_so(Channel& channel, uint64_t now_ns);

// tandem_mark_v1: a request began (+1) or ended (-1) somewhere in the process.
void count_request(Channel* channel, int change);
void forget_requests();  // in a forked child: those of other threads have no end there

}  // namespace tandem::shim
