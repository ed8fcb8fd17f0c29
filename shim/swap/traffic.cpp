#include "traffic.h"

#include <atomic>

namespace tandem::shim::swap {
namespace {

// Per process, whatever channel it has. Relaxed: each figure stands for itself.
struct Total {
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> ns;
};
Total g_totals[2];

void publish(const Total& total, std::atomic<uint64_t>* bytes, std::atomic<uint64_t>* ns) {
  bytes->store(total.bytes.load(std::memory_order_relaxed), std::memory_order_relaxed);
  ns->store(total.ns.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

}  // namespace

void count_copied(Way way, uint64_t bytes, uint64_t ns) {
  Total& total = g_totals[static_cast<uint32_t>(way)];
  total.bytes.fetch_add(bytes, std::memory_order_relaxed);
  total.ns.fetch_add(ns, std::memory_order_relaxed);
}

void publish_traffic(shm::StateSwap* shared) {
  publish(g_totals[0], &shared->out_bytes, &shared->out_ns);
  publish(g_totals[1], &shared->in_bytes, &shared->in_ns);
}

void forget_traffic() {
  for (Total& total : g_totals) {
    total.bytes.store(0, std::memory_order_relaxed);
    total.ns.store(0, std::memory_order_relaxed);
  }
}

}  // namespace tandem::shim::swap
