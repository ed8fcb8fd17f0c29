#include "use.h"

#include "channel.h"
#include "driver.h"
#include "observe.h"
#include "regions.h"
#include "thread_state.h"
#include "wait.h"

namespace tandem::shim::swap {

std::atomic<bool> g_on{false};

namespace {

constexpr uint64_t kSliceNs = 20'000'000;
constexpr uint64_t kVirtualStepNs = 1'000'000;
constexpr uint32_t kShards = 64;

// How many threads are inside, spread over enough shards that threads rarely write to the same
// cache line.
struct alignas(64) Shard {
  std::atomic<uint32_t> inside;
};
Shard g_shards[kShards];

enum Door : uint32_t { kOpen, kShut, kAjar };

// Users and the mover each write their own word and then read the other's: seq_cst, or both could
// miss the other's.
std::atomic<uint32_t> g_door{kOpen};  // futex word
std::atomic<bool> g_ending{false};
// How many of the threads that the channel's page counts as waiting wait here.
std::atomic<uint32_t> g_at_door{0};
std::atomic<uint32_t> g_want_pages{0};

__thread uint32_t t_depth __attribute__((tls_model("initial-exec"))) = 0;

std::atomic<uint32_t>& my_shard() { return g_shards[thread_id() % kShards].inside; }

// Once the driver has ended, it gives everybody this answer, also threads that wait for memory that
// it no longer has.
bool has_driver_ended() {
  CUcontext context = nullptr;
  return g_driver.cuCtxGetCurrent && g_driver.cuCtxGetCurrent(&context) == CUDA_ERROR_DEINITIALIZED;
}

bool is_let_in(Needs needs) {
  const uint32_t door = g_door.load();
  if (door == kOpen) return true;
  if (!g_ending.load()) return false;
  return (door == kAjar && needs == Needs::kTables) || has_driver_ended();
}

void pause(uint32_t door, bool again) {
  if (g_clock.is_virtual())
    g_clock.wait_for_step(kVirtualStepNs, g_clock.now_ns() + kSliceNs, again);
  else futex_wait(g_door, door, kSliceNs);
}

// A thread's wait, as reported to whichever daemon is there: a new daemon does not know of the
// wait, and a process that waits for nothing gets no memory.
class ToldWait {
 public:
  ToldWait() { follow(); }
  ~ToldWait() { end(); }
  ToldWait(const ToldWait&) = delete;
  ToldWait& operator=(const ToldWait&) = delete;

  void follow() {
    Channel* const now = g_channel.load(std::memory_order_acquire);
    const uint32_t attachment = now ? now->attachment.load(std::memory_order_relaxed) : 0;
    if (now == channel_ && attachment == attachment_) return;
    end();
    channel_ = now;
    attachment_ = attachment;
    if (channel_) begin();
  }

 private:
  void begin() {
    shm::StateWaits& waits = channel_->state->waits;
    start_ns_ = g_clock.now_ns();
    g_at_door.fetch_add(1);
    waits.since_ns.store(start_ns_, std::memory_order_relaxed);
    waits.reason.store(static_cast<uint32_t>(shm::WaitReason::kMemory), std::memory_order_relaxed);
    waits.waiting_threads.fetch_add(1, std::memory_order_release);
    ring_doorbell(*channel_);
  }

  void end() {
    if (!channel_) return;
    shm::StateWaits& waits = channel_->state->waits;
    const Waited waited{g_clock.now_ns() - start_ns_, shm::WaitReason::kMemory};
    // Otherwise other pages are mapped there by now, and none of this concerns them.
    if (channel_->attachment.load(std::memory_order_relaxed) == attachment_) {
      waits.total_ns[static_cast<uint32_t>(waited.reason)].fetch_add(waited.ns,
                                                                     std::memory_order_relaxed);
      waits.waiting_threads.fetch_sub(1, std::memory_order_release);
      record_wait(*channel_, waited);
    }
    g_at_door.fetch_sub(1);
  }

  Channel* channel_ = nullptr;
  uint32_t attachment_ = 0;
  uint64_t start_ns_ = 0;
};

void wait(Needs needs) {
  const uint32_t wants_pages = needs == Needs::kPages ? 1 : 0;
  g_want_pages.fetch_add(wants_pages);
  {
    ToldWait told;
    for (bool again = false;; again = true) {
      const uint32_t door = g_door.load();
      if (is_let_in(needs)) break;
      pause(door, again);
      told.follow();
    }
  }
  g_want_pages.fetch_sub(wants_pages);
}

// The last memory that was away has been freed: there is nothing left to wait for.
void open_if_none_is_away() {
  uint32_t door = kAjar;
  if (swapped_bytes() == 0 && g_door.compare_exchange_strong(door, kOpen)) futex_wake_all(g_door);
}

}  // namespace

// Counts as inside only once it is let in: a signal handler that ends the process may run while it
// waits.
void enter(Needs needs) {
  if (t_depth == 0) {
    std::atomic<uint32_t>& inside = my_shard();
    for (inside.fetch_add(1); __builtin_expect(!is_let_in(needs), 0); inside.fetch_add(1)) {
      inside.fetch_sub(1);
      wait(needs);
    }
  }
  ++t_depth;
}

bool wait_at_door() {
  // A thread that is already inside would wait for itself.
  if (t_depth > 0 || is_let_in(Needs::kPages)) return false;
  wait(Needs::kPages);
  return true;
}

void leave(Needs needs) {
  if (needs == Needs::kTables && t_depth == 1 && is_ajar()) open_if_none_is_away();
  if (--t_depth == 0) my_shard().fetch_sub(1, std::memory_order_release);
}

void shut() { g_door.store(kShut); }

void open() {
  g_door.store(kOpen);
  futex_wake_all(g_door);
}

void set_ajar() {
  uint32_t door = kShut;
  if (!g_door.compare_exchange_strong(door, kAjar)) return;
  futex_wake_all(g_door);
  open_if_none_is_away();
}

bool is_shut() { return g_door.load() != kOpen; }

bool is_ajar() { return g_door.load() == kAjar; }

bool is_empty() {
  for (const Shard& shard : g_shards) {
    if (shard.inside.load() != 0) return false;  // acquire: makes visible what they did
  }
  return true;
}

void begin_end() {
  g_ending.store(true);
  futex_wake_all(g_door);
}

bool is_ending() { return g_ending.load(); }

bool is_wanted() {
  if (g_want_pages.load() != 0) return true;
  const Channel* channel = g_channel.load(std::memory_order_acquire);
  return channel &&
         channel->state->waits.waiting_threads.load(std::memory_order_acquire) > g_at_door.load();
}

void forget_users() {
  for (Shard& shard : g_shards) shard.inside.store(0, std::memory_order_relaxed);
  g_door.store(kOpen, std::memory_order_relaxed);
  g_on.store(false, std::memory_order_relaxed);
  g_ending.store(false, std::memory_order_relaxed);
  g_at_door.store(0, std::memory_order_relaxed);
  g_want_pages.store(0, std::memory_order_relaxed);
  t_depth = 0;
}

}  // namespace tandem::shim::swap
