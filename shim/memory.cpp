#include "memory.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>

#include "channel.h"

namespace tandem::shim::memory {
namespace {

struct Entry {
  CUdeviceptr address;  // 0 = free, kGone = was used: a probe goes on past it
  uint64_t bytes;
};
constexpr CUdeviceptr kGone = 1;
constexpr size_t kFirstEntries = 1024;

// Protects g_entries and the three below. Innermost lock; nothing is called under it but mmap.
pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
Entry* g_entries = nullptr;
size_t g_capacity = 0;  // a power of two
size_t g_filled = 0;    // used or gone

std::atomic<uint64_t> g_used{0};
std::atomic<uint64_t> g_last_limit{shm::kNoLimit};

size_t place_of(CUdeviceptr address) {
  return static_cast<size_t>((address >> 8) * 0x9e3779b97f4a7c15u >> 20);
}

void insert(Entry* entries, size_t capacity, CUdeviceptr address, uint64_t bytes) {
  size_t at = place_of(address) & (capacity - 1);
  while (entries[at].address > kGone) at = (at + 1) & (capacity - 1);
  entries[at] = {address, bytes};
}

// Doubles the table when two thirds are filled. From mmap: the job's heap is not ours to use.
bool make_room() {
  if (g_capacity && g_filled * 3 < g_capacity * 2) return true;
  const size_t capacity = g_capacity ? g_capacity * 2 : kFirstEntries;
  void* fresh = mmap(nullptr, capacity * sizeof(Entry), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return g_capacity && g_filled + 1 < g_capacity;
  auto* entries = static_cast<Entry*>(fresh);
  size_t kept = 0;
  for (size_t i = 0; i < g_capacity; ++i) {
    if (g_entries[i].address <= kGone) continue;
    insert(entries, capacity, g_entries[i].address, g_entries[i].bytes);
    ++kept;
  }
  if (g_entries) munmap(g_entries, g_capacity * sizeof(Entry));
  g_entries = entries;
  g_capacity = capacity;
  g_filled = kept;
  return true;
}

Entry* find(CUdeviceptr address) {
  if (!g_capacity) return nullptr;
  size_t at = place_of(address) & (g_capacity - 1);
  for (; g_entries[at].address; at = (at + 1) & (g_capacity - 1)) {
    if (g_entries[at].address == address) return &g_entries[at];
  }
  return nullptr;
}

void publish(void (*change)(shm::StateMemory&)) {
  Channel* channel = g_channel.load(std::memory_order_acquire);
  if (!channel) return;
  shm::StateMemory& shared = channel->state->memory;
  // Two threads may publish at once: whoever stored an older figure sees that and stores again.
  // seq_cst pairs with the changes of g_used in reserve and give_back.
  uint64_t used = g_used.load();
  for (shared.device_bytes.store(used); used != g_used.load(); shared.device_bytes.store(used))
    used = g_used.load();
  uint64_t peak = shared.peak_bytes.load(std::memory_order_relaxed);
  while (peak < used &&
         !shared.peak_bytes.compare_exchange_weak(peak, used, std::memory_order_relaxed)) {
  }
  if (change) change(shared);
}

}  // namespace

uint64_t used_bytes() { return g_used.load(std::memory_order_relaxed); }

// Limits outlive the daemon: what it said last holds while it is away.
uint64_t limit_bytes() {
  if (Channel* channel = g_channel.load(std::memory_order_acquire)) {
    g_last_limit.store(channel->command->memory.limit_bytes.load(std::memory_order_relaxed),
                       std::memory_order_relaxed);
  }
  return g_last_limit.load(std::memory_order_relaxed);
}

bool reserve(uint64_t bytes) {
  const uint64_t limit = limit_bytes();
  uint64_t used = used_bytes();
  do {
    if (limit != shm::kNoLimit && (used > limit || bytes > limit - used)) {
      publish([](shm::StateMemory& shared) {
        shared.refused_count.fetch_add(1, std::memory_order_relaxed);
      });
      return false;
    }
  } while (!g_used.compare_exchange_weak(used, used + bytes));
  return true;
}

void give_back(uint64_t bytes) {
  uint64_t used = used_bytes();
  while (!g_used.compare_exchange_weak(used, used - std::min(used, bytes))) {
  }
  publish(nullptr);
}

void remember(CUdeviceptr address, uint64_t bytes) {
  restore(address, bytes);
  publish([](shm::StateMemory& shared) {
    shared.alloc_count.fetch_add(1, std::memory_order_relaxed);
  });
}

void restore(CUdeviceptr address, uint64_t bytes) {
  pthread_mutex_lock(&g_lock);
  if (address > kGone && make_room()) {
    insert(g_entries, g_capacity, address, bytes);
    ++g_filled;
  }
  pthread_mutex_unlock(&g_lock);
}

uint64_t forget(CUdeviceptr address) {
  uint64_t bytes = 0;
  pthread_mutex_lock(&g_lock);
  if (Entry* entry = address > kGone ? find(address) : nullptr) {
    bytes = entry->bytes;
    *entry = {kGone, 0};
  }
  pthread_mutex_unlock(&g_lock);
  return bytes;
}

void limit_view(size_t* free_bytes, size_t* total_bytes) {
  const uint64_t limit = limit_bytes();
  if (limit == shm::kNoLimit) return;
  const uint64_t used = used_bytes();
  const uint64_t left = limit > used ? limit - used : 0;
  if (total_bytes) *total_bytes = std::min<size_t>(*total_bytes, limit);
  if (free_bytes) *free_bytes = std::min<size_t>(*free_bytes, left);
}

void lock_for_fork() { pthread_mutex_lock(&g_lock); }
void unlock_after_fork() { pthread_mutex_unlock(&g_lock); }

void start_afresh() {
  if (g_entries) munmap(g_entries, g_capacity * sizeof(Entry));
  g_entries = nullptr;
  g_capacity = g_filled = 0;
  g_used.store(0, std::memory_order_relaxed);
}

}  // namespace tandem::shim::memory
