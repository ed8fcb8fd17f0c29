#include "presence.h"

#include <algorithm>

#include "segments.h"
#include "wait.h"

namespace tandem::shim {
namespace {

// Far ahead, but not for ever: a process that stops without a word holds nobody longer than this.
constexpr uint64_t kAheadNs = 1'000'000'000;
constexpr uint64_t kRefreshNs = kAheadNs / 2;
constexpr uint64_t kMaxLingerNs = 1'000'000'000;

std::atomic<int> g_requests{0};

}  // namespace

void move_busy_ahead(Channel& channel, uint64_t now_ns) {
  auto& until = channel.presence->busy_until_ns;
  if (until.load(std::memory_order_relaxed) < now_ns + kRefreshNs)
    until.store(now_ns + kAheadNs, std::memory_order_release);  // peers: acquire in the gate
}

void show_idle_if_so(Channel& channel, uint64_t now_ns) {
  if (!is_latency_class(channel)) return;
  auto& until = channel.presence->busy_until_ns;
  if (g_requests.load(std::memory_order_relaxed) > 0) {
    if (until.load(std::memory_order_relaxed) < now_ns + kRefreshNs)
      until.store(now_ns + kAheadNs, std::memory_order_release);
    return;
  }
  if (!all_idle(channel)) return show_busy(channel, now_ns);
  const uint64_t linger =
      std::min(channel.command->gate.linger_ns.load(std::memory_order_relaxed), kMaxLingerNs);
  const uint64_t end = now_ns + linger;
  if (until.load(std::memory_order_relaxed) <= end) return;
  until.store(end, std::memory_order_release);
  futex_wake_all(low_half(until));
}

void count_request(Channel* channel, int change) {
  const int running = g_requests.fetch_add(change, std::memory_order_relaxed) + change;
  if (running < 0) g_requests.store(0, std::memory_order_relaxed);
  if (!channel) return;
  const uint64_t now = g_clock.now_ns();
  if (change > 0) show_busy(*channel, now);
  else show_idle_if_so(*channel, now);
}

}  // namespace tandem::shim
