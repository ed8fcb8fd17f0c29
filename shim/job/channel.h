// One attachment to the daemon: the three maps, the gate over them, and what only this process needs
// to know of each slot. A lost channel is forgotten but never unmapped, see berths.h.
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
inline constexpr uint64_t kContextNumber = ~uint64_t{0} << 32;  // its part of StreamSlot::common

// Channel::registered
inline constexpr uint32_t kNotTried = 0, kTrying = 1, kRegistered = 2, kFailed = 3,
                          kSuspended = 4;  // while its context may be going

enum class MarkBy : uint32_t { kUndecided, kMemoryOperation, kEvent };

// The private side of one shm::Slot, in lines of its own: each launch writes to it. Fields without a comment are
// written by the thread that makes the slot, before `stream` is published.
struct alignas(64) StreamSlot {
  std::atomic<uint64_t> stream;  // normalised CUstream; release when published, acquire in look-ups
  std::atomic<uint64_t> context;
  std::atomic<uint64_t> home;    // a context that any thread may have current: the primary one of a green one
  std::atomic<uint32_t> thread;  // owner of a per-thread default stream, else 0
  std::atomic<uint32_t> device;
  // What all records of the stream have in common, in one word for the launch path: the number of
  // the context in the high half (0: the daemon does not ask), flags in the low byte.
  std::atomic<uint64_t> common;
  std::atomic<bool> blocking;    // synchronises with the legacy stream
  std::atomic<bool> green;       // of a green context, which only one thread may have current
  std::atomic<bool> programmatic;  // had launches whose overlap a memory operation would end
  std::atomic<uint64_t> last_wait_ns;  // when something that may wait for others was put into it
  std::atomic<uint64_t> launches;  // so far; plain stores, as in add_to_segment
  std::atomic<uint64_t> inside;  // thread << 32 | number of its call, while one adds to it; see inside.h
  std::atomic<uint32_t> submitter;  // the last thread that did; plain stores
  std::atomic<bool> ending;  // the program destroys it: no driver call with it begins any more
  // Try-lock of whoever issues a marker, retires the slot or reads its events. Destroyers wait for it,
  // for a bounded time; all others go away.
  std::atomic<bool> busy;
  // Under `busy`:
  uint64_t launches_told;  // of `launches`, to the daemon
  MarkBy mark_by;
  CUdeviceptr done_address;
  CUevent events[kPendingEvents];  // fallback: event i carries marker event_value[i]
  uint64_t event_value[kPendingEvents];
};

struct Channel {
  // Counts from 1; another one than at the last look: these are another attachment's pages. Relaxed.
  std::atomic<uint32_t> attachment{0};
  const shm::CommandPage* command = nullptr;
  shm::StatePage* state = nullptr;
  shm::Slot* slots = nullptr;
  shm::PresencePage* presence = nullptr;
  Gate gate;
  // Records only: no gate, no markers. The helper changes it; nothing else hangs on it, and a look is
  // a plain load whatever the order.
  std::atomic<bool> observe{false};
  Descriptor socket;  // helper; others only look
  uint64_t features = 0;  // of its daemon
  bool has_samples = false;  // the state pages end with the sample ring
  ties::Told told;        // helper
  uint32_t swap_order = 0;  // the newest that was looked at; helper
  uint64_t process_id = 0;
  uint64_t job_id = 0;
  StreamSlot streams[shm::kSlotCount]{};
  std::atomic<bool> has_unslotted{false};  // there were more streams than slots
  // The slot pages as seen from the GPU.
  std::atomic<uint32_t> registered{kNotTried};
  std::atomic<uint64_t> registered_base{0};
  std::atomic<uint64_t> registered_in{0};  // the context that holds the registration
  std::atomic<int> registered_on{-1};      // and its device
  std::atomic<bool> was_registered{false};  // these pages, be it in a context that is gone

  void lay_out(const shm::CommandPage* command_map, shm::StatePage* state_map,
               shm::PresencePage* presence_map, const Clock* clock);
};

// Null while unmanaged. Release on attach and loss; launching threads: acquire.
inline constexpr std::atomic<Channel*>& g_channel = g_own_page.channel;
extern Clock g_clock;

// Something on the state page is worth a look of the daemon before its next one.
void ring_doorbell(const Channel& channel);

}  // namespace tandem::shim
