// What each thread keeps for itself, so that a launch touches no cache line that another thread
// writes.
#pragma once

#include <cstdint>

#include "always_inline.h"
#include "channel.h"
#include "ring_writer.h"

namespace tandem::shim {

namespace partition {
struct Owner;
}

// Whether a thread counts among those that use the device, see memory/line.h.
enum class Counted : uint8_t { kNotYet, kYes, kNever };

struct ThreadState {
  RingWriter ring;
  uint32_t ring_of = 0;  // Channel::attachment
  uint32_t tid = 0;
  uint32_t launches = 0;   // picks the rare timing samples
  uint32_t calls = 0;      // that added to a stream
  bool is_inside = false;  // inside such a call, see stream/inside.h
  Pass pass;
  shm::Refusal refused_by = shm::Refusal::kDevice;  // for its current attempt to take memory
  Counted counted = Counted::kNotYet;
  // The last query that was reported: its handle plus one, and the ring's end at that time.
  uint64_t queried = 0;
  uint64_t queried_at = 0;
  // The slot last found by a full search; used again as long as it fits.
  uint32_t found_in = 0;  // Channel::attachment
  uint32_t found = 0;
  // The slot of the last submission.
  uint32_t attachment = 0;
  uint64_t stream = kNoStream;
  uint64_t context = 0;
  uint32_t slot = kNoSlot;
  partition::Owner* owner = nullptr;  // see partition/bias.h
};

// __thread, not thread_local: no wrapper function around each access.
extern __thread ThreadState g_thread __attribute__((tls_model("initial-exec")));

uint32_t ask_thread_id();
inline uint32_t thread_id() {
  return __builtin_expect(g_thread.tid != 0, 1) ? g_thread.tid : ask_thread_id();
}

// Arranges that this thread gives back what it has when it ends: its ring, and the slots of its
// per-thread default streams.
void watch_thread_end();

void claim_ring(Channel& channel);

// Lets `write` fill a record in this thread's ring; claims the ring on first use. Does nothing
// while the daemon wants no telemetry.
template <class Write>
ALWAYS_INLINE void fill_record(Channel& channel, Write write) {
  const uint32_t flags = channel.command->gate.flags.load(std::memory_order_relaxed);
  if (!(flags & shm::kFlagTelemetry)) return;
  const uint32_t attachment = channel.attachment.load(std::memory_order_relaxed);
  if (__builtin_expect(g_thread.ring_of != attachment, 0)) claim_ring(channel);
  g_thread.ring.fill(write);
}

void write_record(Channel& channel, const shm::Record& record);

}  // namespace tandem::shim
