#include "use.h"

#include "channel.h"
#include "observe.h"
#include "thread_state.h"
#include "wait.h"

namespace tandem::shim::swap {

std::atomic<bool> g_on{false};

namespace {

constexpr uint64_t kSliceNs = 20'000'000;
constexpr uint64_t kVirtualStepNs = 1'000'000;
constexpr uint32_t kShards = 64;

// How many threads are inside, in as many places as it takes for them not to write to one line.
struct alignas(64) Shard {
  std::atomic<uint32_t> inside;
};
Shard g_shards[kShards];

// Both words are written and then the other read, by users and by the mover: seq_cst, or each could
// miss the other's.
std::atomic<uint32_t> g_shut{0};  // futex word
std::atomic<bool> g_stopped{false};

__thread uint32_t t_depth __attribute__((tls_model("initial-exec"))) = 0;

std::atomic<uint32_t>& my_shard() { return g_shards[thread_id() % kShards].inside; }

void pause() {
  if (g_clock.is_virtual()) g_clock.sleep_until_ns(g_clock.now_ns() + kVirtualStepNs);
  else futex_wait(g_shut, 1, kSliceNs);
}

void wait() {
  Channel* channel = g_channel.load(std::memory_order_acquire);
  shm::StateWaits* waits = channel ? &channel->state->waits : nullptr;
  const uint64_t start_ns = g_clock.now_ns();
  if (waits) {
    waits->since_ns.store(start_ns, std::memory_order_relaxed);
    waits->reason.store(static_cast<uint32_t>(shm::WaitReason::kMemory), std::memory_order_relaxed);
    waits->waiting_threads.fetch_add(1, std::memory_order_release);
    ring_doorbell(*channel);
  }
  while (g_shut.load() && !g_stopped.load(std::memory_order_relaxed)) pause();
  if (!waits) return;
  const Waited waited{g_clock.now_ns() - start_ns, shm::WaitReason::kMemory};
  waits->total_ns[static_cast<uint32_t>(waited.reason)].fetch_add(waited.ns,
                                                                  std::memory_order_relaxed);
  waits->waiting_threads.fetch_sub(1, std::memory_order_release);
  record_wait(*channel, waited);
}

}  // namespace

void enter() {
  if (t_depth++ > 0) return;
  std::atomic<uint32_t>& inside = my_shard();
  for (;;) {
    inside.fetch_add(1);
    if (__builtin_expect(!g_shut.load(), 1) || g_stopped.load(std::memory_order_relaxed)) return;
    inside.fetch_sub(1);
    wait();
  }
}

bool wait_at_door() {
  // Inside already, it would wait for itself.
  if (t_depth > 0 || !g_shut.load() || g_stopped.load(std::memory_order_relaxed)) return false;
  wait();
  return true;
}

void leave() {
  if (--t_depth == 0) my_shard().fetch_sub(1, std::memory_order_release);
}

void shut() { g_shut.store(1); }

void open() {
  g_shut.store(0);
  futex_wake_all(g_shut);
}

bool is_shut() { return g_shut.load() != 0; }

bool is_empty() {
  for (const Shard& shard : g_shards) {
    if (shard.inside.load() != 0) return false;  // acquire: what they did is seen
  }
  return true;
}

void stop_waiting() {
  g_stopped.store(true, std::memory_order_relaxed);
  futex_wake_all(g_shut);
}

void forget_users() {
  for (Shard& shard : g_shards) shard.inside.store(0, std::memory_order_relaxed);
  g_shut.store(0, std::memory_order_relaxed);
  g_on.store(false, std::memory_order_relaxed);
  g_stopped.store(false, std::memory_order_relaxed);
  t_depth = 0;
}

}  // namespace tandem::shim::swap
