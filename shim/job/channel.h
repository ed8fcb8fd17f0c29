// One attachment to the daemon: the three maps, the gate over them, and what only this process
// needs to know about each slot. A lost channel is forgotten but never unmapped, see berths.h.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "clock.h"
#include "descriptor.h"
#include "gate.h"
#include "own_page.h"
#include "shm_layout.h"
#include "ties.h"

namespace tandem::shim {

inline constexpr uint64_t kNoStream = ~uint64_t{0};       // StreamSlot::stream: free
inline constexpr uint64_t kStreamMaking = ~uint64_t{1};   // being filled by one thread
inline constexpr uint64_t kStreamRetired = ~uint64_t{2};  // destroyed; free once its work is done
inline constexpr uint32_t kNoSlot = 0xffff;
inline constexpr uint32_t kPendingEvents = 4;
// The context's part of StreamSlot::common.
inline constexpr uint64_t kContextNumber = ~uint64_t{0} << 32;

// Channel::registered
inline constexpr uint32_t kNotTried = 0, kTrying = 1, kRegistered = 2, kFailed = 3,
                          kSuspended = 4;  // while its context may be about to go

enum class MarkBy : uint32_t { kUndecided, kMemoryOperation, kEvent };

// The private side of one shm::Slot, in cache lines of its own because each launch writes to it.
// Fields without a comment are written by the thread that makes the slot, before it publishes
// `stream`.
struct alignas(64) StreamSlot {
  std::atomic<uint64_t> stream;  // normalised CUstream; release when published, acquire in look-ups
  std::atomic<uint64_t> context;
  // A context that any thread may make current: for a green one, its primary.
  std::atomic<uint64_t> home;
  std::atomic<uint32_t> thread;  // owner of a per-thread default stream, else 0
  std::atomic<uint32_t> device;
  // What all records of the stream have in common, in one word for the launch path: the context's
  // number in the high half (0: the daemon does not ask for it), flags in the low byte.
  std::atomic<uint64_t> common;
  std::atomic<bool> blocking;      // synchronises with the legacy stream
  std::atomic<bool> green;         // of a green context, which only one thread may have current
  std::atomic<bool> programmatic;  // had launches whose overlap a memory operation would prevent
  // When something that may wait for others was last put into it.
  std::atomic<uint64_t> last_wait_ns;
  std::atomic<uint64_t> launches;  // so far; plain stores, as in add_to_segment
  // thread << 32 | number of its call, while a thread adds to the stream; see inside.h.
  std::atomic<uint64_t> inside;
  std::atomic<uint32_t> submitter;  // the last thread that added to it; plain stores
  std::atomic<bool> ending;         // the program destroys it: no further driver call may use it
  // Try-lock for issuing a marker, retiring the slot or reading its events. Destroyers wait for it,
  // for a bounded time; all others give up.
  std::atomic<bool> busy;
  // Under `busy`:
  uint64_t launches_told;  // of `launches`: how many the daemon was told of
  MarkBy mark_by;
  CUdeviceptr done_address;
  CUevent events[kPendingEvents];  // fallback: event i carries marker event_value[i]
  uint64_t event_value[kPendingEvents];
};

struct Channel {
  // Counts from 1. If it differs from the last look, these pages belong to another attachment.
  // Relaxed.
  std::atomic<uint32_t> attachment{0};
  const shm::CommandPage* command = nullptr;
  shm::StatePage* state = nullptr;
  shm::Slot* slots = nullptr;
  shm::PresencePage* presence = nullptr;
  Gate gate;
  // Records only: no gate, no markers. The helper changes it; no other data depends on it, and
  // reading it is a plain load whatever the order.
  std::atomic<bool> observe{false};
  Descriptor socket;         // helper; others only look
  uint64_t features = 0;     // of this channel's daemon
  bool has_samples = false;  // the state pages end with the sample ring
  ties::Told told;           // helper
  uint32_t swap_order = 0;   // the newest that was looked at; helper
  uint64_t process_id = 0;
  uint64_t job_id = 0;
  StreamSlot streams[shm::kSlotCount]{};
  std::atomic<bool> has_unslotted{false};  // there were more streams than slots
  // The slot pages as the GPU sees them.
  std::atomic<uint32_t> registered{kNotTried};
  std::atomic<uint64_t> registered_base{0};
  std::atomic<uint64_t> registered_in{0};  // the context that holds the registration
  std::atomic<int> registered_on{-1};      // and its device
  // Whether these pages were ever registered, even if the context is gone by now.
  std::atomic<bool> was_registered{false};

  void lay_out(const shm::CommandPage* command_map, shm::StatePage* state_map,
               shm::PresencePage* presence_map, const Clock* clock);
};

// Null while unmanaged. Release on attach and loss; launching threads: acquire.
inline constexpr std::atomic<Channel*>& g_channel = g_own_page.channel;
extern Clock g_clock;

// Tells the daemon to look at the state page now instead of at its next regular look.
void ring_doorbell(const Channel& channel);

}  // namespace tandem::shim
