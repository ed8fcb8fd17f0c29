#include "presence.h"

#include <algorithm>

#include "linger.h"
#include "segments.h"
#include "wait.h"

namespace tandem::shim {
namespace {

// Far ahead, but finite: a process that stops without notice holds up nobody longer than this.
constexpr uint64_t kAheadNs = 1'000'000'000;
constexpr uint64_t kRefreshNs = kAheadNs / 2;
constexpr uint64_t kMaxLingerNs = 1'000'000'000;

std::atomic<int> g_requests{0};
GapHistogram g_gaps;
std::atomic<uint64_t> g_idle_since{0};  // 0 = not idle, or the gap was counted

uint64_t base_linger_ns(const Channel& channel) {
  return std::min(channel.command->gate.linger_ns.load(std::memory_order_relaxed), kMaxLingerNs);
}

// Whether the process is paused or lacks memory. Its requests then progress no sooner if others
// stay away: those may hold what the requests wait for.
bool is_kept_waiting(const Channel& channel) {
  // Relaxed: repeated calls see it later, and its bytes are not read.
  if (channel.state->memory.wait_ticket.load(std::memory_order_relaxed) != 0) return true;
  const shm::StateWaits& waits = channel.state->waits;
  if (waits.waiting_threads.load(std::memory_order_acquire) == 0) return false;
  const auto reason = static_cast<shm::WaitReason>(waits.reason.load(std::memory_order_relaxed));
  return reason == shm::WaitReason::kGate || reason == shm::WaitReason::kMemory;
}

}  // namespace

void move_busy_ahead(Channel& channel, uint64_t now_ns) {
  auto& until = channel.presence->busy_until_ns;
  if (until.load(std::memory_order_relaxed) >= now_ns + kRefreshNs) return;
  until.store(now_ns + kAheadNs, std::memory_order_release);  // peers: acquire in the gate
  const uint64_t idle_since = g_idle_since.exchange(0, std::memory_order_relaxed);
  if (idle_since && now_ns > idle_since) g_gaps.add(now_ns - idle_since);
}

void tune_linger(Channel& channel) {
  if (!is_latency_class(channel)) return;
  const shm::CommandGate& gate = channel.command->gate;
  const uint64_t limit =
      std::min(gate.linger_limit_ns.load(std::memory_order_relaxed), kMaxLingerNs);
  const uint64_t linger = g_gaps.linger_ns(base_linger_ns(channel), limit);
  channel.state->control.linger_ns.store(linger, std::memory_order_relaxed);
}

void show_idle_if_so(Channel& channel, uint64_t now_ns) {
  if (!is_latency_class(channel)) return;
  auto& until = channel.presence->busy_until_ns;
  const bool has_request = g_requests.load(std::memory_order_relaxed) > 0;
  if (has_request && !is_kept_waiting(channel)) {
    if (until.load(std::memory_order_relaxed) < now_ns + kRefreshNs)
      until.store(now_ns + kAheadNs, std::memory_order_release);
    return;
  }
  if (!all_idle(channel)) return show_busy(channel, now_ns);
  const uint64_t tuned = channel.state->control.linger_ns.load(std::memory_order_relaxed);
  const uint64_t end = now_ns + std::max(tuned, base_linger_ns(channel));
  if (until.load(std::memory_order_relaxed) <= end) return;
  if (!has_request) g_idle_since.store(now_ns, std::memory_order_relaxed);
  until.store(end, std::memory_order_release);
  futex_wake_all(low_half(until));
}

void forget_requests() { g_requests.store(0, std::memory_order_relaxed); }

void count_request(Channel* channel, int change) {
  const int running = g_requests.fetch_add(change, std::memory_order_relaxed) + change;
  if (running < 0) g_requests.store(0, std::memory_order_relaxed);
  if (!channel) return;
  const uint64_t now = g_clock.now_ns();
  if (change > 0) show_busy(*channel, now);
  else show_idle_if_so(*channel, now);
}

}  // namespace tandem::shim
