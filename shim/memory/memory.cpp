#include "memory.h"

#include <algorithm>
#include <atomic>

#include "channel.h"
#include "faults.h"

namespace tandem::shim::memory {
namespace {

// Changes and their sum are seq_cst: publish() relies on it.
std::atomic<uint64_t> g_used_on[kMostDevices];
std::atomic<uint32_t> g_devices{1};  // of these, so many may be other than 0
std::atomic<uint64_t> g_imported{0};
std::atomic<uint64_t> g_last_limit{shm::kNoLimit};
std::atomic<bool> g_marked{false};  // an iteration has ended

std::atomic<uint64_t>& used_on(uint32_t device) {
  const uint32_t row = std::min(device, kMostDevices - 1);
  uint32_t devices = g_devices.load();
  while (__builtin_expect(row >= devices, 0) &&
         !g_devices.compare_exchange_weak(devices, row + 1)) {
  }
  return g_used_on[row];
}

uint64_t sum() {
  uint64_t used = 0;
  for (uint32_t row = 0; row < g_devices.load(); ++row) used += g_used_on[row].load();
  return used;
}

// By no more than there is: a figure that is off must never become a huge one.
void subtract(std::atomic<uint64_t>& from, uint64_t bytes) {
  uint64_t used = from.load(std::memory_order_relaxed);
  while (!from.compare_exchange_weak(used, used - std::min(used, bytes))) {
  }
}

void raise(std::atomic<uint64_t>& most, uint64_t bytes) {
  uint64_t known = most.load(std::memory_order_relaxed);
  while (known < bytes &&
         !most.compare_exchange_weak(known, bytes, std::memory_order_relaxed)) {
  }
}

shm::StateMemory* shared_page() {
  Channel* channel = g_channel.load(std::memory_order_acquire);
  return channel ? &channel->state->memory : nullptr;
}

}  // namespace

void publish() {
  Channel* channel = g_channel.load(std::memory_order_acquire);
  if (!channel) return;
  shm::StateMemory* shared = &channel->state->memory;
  // Two threads may publish at once: whoever stored an older figure sees that and stores again.
  // seq_cst pairs with the changes.
  uint64_t used = sum();
  for (shared->device_bytes.store(used); used != sum(); shared->device_bytes.store(used))
    used = sum();
  raise(shared->peak_bytes, used);
  // Relaxed: a thread that takes memory beside the first mark may belong to either side of it.
  if (g_marked.load(std::memory_order_relaxed)) raise(channel->state->iterations.peak_bytes, used);
}

void end_iteration() {
  Channel* channel = g_channel.load(std::memory_order_acquire);
  if (!channel) return;
  const uint64_t used = sum();
  raise(channel->state->iterations.end_bytes, used);
  raise(channel->state->iterations.peak_bytes, used);
  g_marked.store(true, std::memory_order_relaxed);
}

void count_refused(shm::Refusal by) {
  Channel* channel = g_channel.load(std::memory_order_acquire);
  if (!channel) return;
  channel->state->refusals.count[static_cast<uint32_t>(by)].fetch_add(1, std::memory_order_relaxed);
  channel->state->memory.refused_count.fetch_add(1, std::memory_order_relaxed);
}

void count_allocated() {
  if (shm::StateMemory* shared = shared_page())
    shared->alloc_count.fetch_add(1, std::memory_order_relaxed);
}

uint64_t used_bytes() { return sum(); }
uint64_t used_bytes(uint32_t device) { return used_on(device).load(std::memory_order_relaxed); }

// Limits outlive the daemon: what it said last holds while it is away.
uint64_t limit_bytes() {
  if (Channel* channel = g_channel.load(std::memory_order_acquire)) {
    g_last_limit.store(channel->command->memory.limit_bytes.load(std::memory_order_relaxed),
                       std::memory_order_relaxed);
  }
  return g_last_limit.load(std::memory_order_relaxed);
}

// A lease that nobody is there to raise would starve the process.
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
  std::atomic<uint64_t>& on_device = used_on(device);
  uint64_t used = on_device.load(std::memory_order_relaxed);
  do {
    if (limit != shm::kNoLimit && (used > limit || bytes > limit - used)) return false;
  } while (!on_device.compare_exchange_weak(used, used + bytes));
  return true;
}

void add(uint32_t device, uint64_t bytes) {
  used_on(device).fetch_add(bytes);
  publish();
}

void give_back(uint32_t device, uint64_t bytes) {
  if (!bytes || planted(Fault::kLeakBytes)) return;
  if (planted(Fault::kFreeTwice)) bytes *= 2;
  subtract(used_on(device), bytes);
  publish();
}

void limit_view(uint32_t device, size_t* free_bytes, size_t* total_bytes) {
  const uint64_t limit = limit_bytes();
  if (limit == shm::kNoLimit) return;
  const uint64_t used = used_bytes(device);
  const uint64_t left = limit > used ? limit - used : 0;
  if (total_bytes) *total_bytes = std::min<size_t>(*total_bytes, limit);
  if (free_bytes) *free_bytes = std::min<size_t>(*free_bytes, left);
}

void add_imported(int64_t bytes) {
  g_imported.fetch_add(static_cast<uint64_t>(bytes), std::memory_order_relaxed);
}
uint64_t imported_bytes() { return g_imported.load(std::memory_order_relaxed); }

void start_afresh() {
  for (auto& used : g_used_on) used.store(0, std::memory_order_relaxed);
  g_imported.store(0, std::memory_order_relaxed);
  g_marked.store(false, std::memory_order_relaxed);
}

}  // namespace tandem::shim::memory
