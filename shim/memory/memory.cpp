#include "memory.h"

#include <algorithm>
#include <atomic>

#include "channel.h"
#include "faults.h"
#include "log.h"
#include "short_lock.h"

namespace tandem::shim::memory {
namespace {

// Protects the amounts and what the page shows of them, so that the last writer shows the newest
// amounts. Readers take no lock, so all amounts are atomic; relaxed.
ShortLock g_lock;
std::atomic<uint64_t> g_used_on[kMostDevices];
std::atomic<uint32_t> g_devices{1};  // only this many may differ from 0
std::atomic<uint64_t> g_last_limit{shm::kNoLimit};
std::atomic<bool> g_marked{false};  // an iteration has ended

uint32_t row_of(uint32_t device) { return std::min(device, kMostDevices - 1); }

uint64_t sum() {
  uint64_t used = 0;
  const uint32_t devices = g_devices.load(std::memory_order_relaxed);
  for (uint32_t row = 0; row < devices; ++row)
    used += g_used_on[row].load(std::memory_order_relaxed);
  return used;
}

// The following functions run with the lock held, so nobody else writes.
void set_used(uint32_t device, uint64_t bytes) {
  const uint32_t row = row_of(device);
  if (__builtin_expect(row >= g_devices.load(std::memory_order_relaxed), 0))
    g_devices.store(row + 1, std::memory_order_relaxed);
  g_used_on[row].store(bytes, std::memory_order_relaxed);
}

void raise(std::atomic<uint64_t>& most, uint64_t bytes) {
  if (most.load(std::memory_order_relaxed) < bytes) most.store(bytes, std::memory_order_relaxed);
}

void show_taken(shm::StatePage* page, uint64_t used) {
  page->memory.taken_bytes.store(used, std::memory_order_relaxed);
}

void show(shm::StatePage* page) {
  const uint64_t used = sum();
  show_taken(page, used);
  page->memory.device_bytes.store(used, std::memory_order_relaxed);
  raise(page->memory.peak_bytes, used);
  if (g_marked.load(std::memory_order_relaxed)) raise(page->iterations.peak_bytes, used);
}

bool waits_for_memory() {
  const Channel* channel = g_channel.load(std::memory_order_acquire);
  return channel && channel->command->memory.wait_ns.load(std::memory_order_relaxed) != 0;
}

shm::StatePage* shared_page() {
  Channel* channel = g_channel.load(std::memory_order_acquire);
  return channel ? channel->state : nullptr;
}

}  // namespace

void publish() {
  const HoldsShortLock lock(&g_lock);
  if (shm::StatePage* page = shared_page()) show(page);
}

void end_iteration() {
  const HoldsShortLock lock(&g_lock);
  shm::StatePage* page = shared_page();
  if (!page) return;
  const uint64_t used = sum();
  raise(page->iterations.end_bytes, used);
  raise(page->iterations.peak_bytes, used);
  g_marked.store(true, std::memory_order_relaxed);
}

void count_refused(shm::Refusal by) {
  Channel* channel = g_channel.load(std::memory_order_acquire);
  if (!channel) return;
  if (by == shm::Refusal::kQuota)  // to the program, this looks like a full device
    say_mib_once("refused device memory: this process may use", bound_bytes(),
                 "now (see tandem explain)");
  channel->state->refusals.count[static_cast<uint32_t>(by)].fetch_add(1, std::memory_order_relaxed);
  channel->state->memory.refused_count.fetch_add(1, std::memory_order_relaxed);
}

void count_allocated() {
  const HoldsShortLock lock(&g_lock);
  shm::StatePage* page = shared_page();
  if (!page) return;
  std::atomic<uint64_t>& count = page->memory.alloc_count;
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  show(page);
}

uint64_t used_bytes() { return sum(); }
uint64_t used_bytes(uint32_t device) {
  return g_used_on[row_of(device)].load(std::memory_order_relaxed);
}

// Limits outlive the daemon: its last word counts while it is away.
uint64_t limit_bytes() {
  const uint64_t last = g_last_limit.load(std::memory_order_relaxed);
  const Channel* channel = g_channel.load(std::memory_order_acquire);
  if (!channel) return last;
  const uint64_t limit = channel->command->memory.limit_bytes.load(std::memory_order_relaxed);
  if (limit != last) g_last_limit.store(limit, std::memory_order_relaxed);
  return limit;
}

// Ignores a lease while no daemon is there to raise it, or it would starve the process.
uint64_t bound_bytes() {
  const uint64_t limit = limit_bytes();
  const Channel* channel = g_channel.load(std::memory_order_acquire);
  if (!channel) return limit;
  const uint64_t lease = channel->command->memory.lease_bytes.load(std::memory_order_relaxed);
  if (lease == 0 || lease >= limit) return limit;
  const uint32_t flags = channel->command->gate.flags.load(std::memory_order_relaxed);
  const bool alone = channel->gate.lost() || channel->gate.stale() || (flags & shm::kFlagReleased);
  return alone ? limit : lease;
}

bool is_over_limit(uint32_t device) {
  const uint64_t limit = bound_bytes();
  return limit != shm::kNoLimit && used_bytes(device) > limit;
}

bool take(uint32_t device, uint64_t bytes, uint64_t limit) {
  const HoldsShortLock lock(&g_lock);
  const uint64_t used = used_bytes(device);
  if (limit != shm::kNoLimit && (used > limit || bytes > limit - used)) return false;
  set_used(device, used + bytes);
  if (shm::StatePage* page = shared_page()) show_taken(page, sum());
  return true;
}

void add(uint32_t device, uint64_t bytes) {
  const HoldsShortLock lock(&g_lock);
  set_used(device, used_bytes(device) + bytes);
  if (shm::StatePage* page = shared_page()) show(page);
}

void give_back(uint32_t device, uint64_t bytes) {
  if (!bytes || planted(Fault::kLeakBytes)) return;
  if (planted(Fault::kFreeTwice)) bytes *= 2;
  const HoldsShortLock lock(&g_lock);
  const uint64_t used = used_bytes(device);
  set_used(device, used - std::min(used, bytes));  // a wrong count must never become a huge one
  if (shm::StatePage* page = shared_page()) show(page);
}

void limit_view(uint32_t device, size_t* free_bytes, size_t* total_bytes) {
  const uint64_t limit = limit_bytes();
  if (limit == shm::kNoLimit) return;
  // A thread that waits for memory can get more than the current bound; to all others the bound is
  // all there is.
  const uint64_t bound = waits_for_memory() ? limit : bound_bytes(), used = used_bytes(device);
  const uint64_t left = bound > used ? bound - used : 0;
  if (total_bytes) *total_bytes = std::min<size_t>(*total_bytes, limit);
  if (free_bytes) *free_bytes = std::min<size_t>(*free_bytes, left);
}

void start_afresh() {
  g_lock.start_afresh();
  for (auto& used : g_used_on) used.store(0, std::memory_order_relaxed);
  g_marked.store(false, std::memory_order_relaxed);
}

}  // namespace tandem::shim::memory
