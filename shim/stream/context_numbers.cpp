#include "context_numbers.h"

#include <pthread.h>

#include <atomic>

namespace tandem::shim {
namespace {

struct Numbered {
  std::atomic<uint64_t> context;  // release after `number` is set, acquire in find
  std::atomic<uint32_t> number;
};

constexpr uint32_t kContexts = 64;
Numbered g_contexts[kContexts];
// Serialises handing out numbers; a look-up takes no lock.
pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;
uint32_t g_last = 0;  // under g_mutex

uint32_t find(uint64_t context) {
  for (const Numbered& one : g_contexts) {
    if (one.context.load(std::memory_order_acquire) == context)
      return one.number.load(std::memory_order_relaxed);
  }
  return 0;
}

uint32_t add(uint64_t context) {
  for (Numbered& one : g_contexts) {
    if (one.context.load(std::memory_order_relaxed) != 0) continue;
    one.number.store(++g_last, std::memory_order_relaxed);
    one.context.store(context, std::memory_order_release);
    return g_last;
  }
  return 0;
}

}  // namespace

uint32_t context_number(uint64_t context) {
  if (context == 0) return 0;
  if (const uint32_t number = find(context)) return number;
  pthread_mutex_lock(&g_mutex);
  uint32_t number = find(context);
  if (number == 0) number = add(context);
  pthread_mutex_unlock(&g_mutex);
  return number;
}

void forget_context_number(uint64_t context) {
  if (context == 0) return;
  for (Numbered& one : g_contexts) {
    uint64_t held = context;
    one.context.compare_exchange_strong(held, 0, std::memory_order_relaxed);
  }
}

void reset_context_numbers() {
  g_mutex = PTHREAD_MUTEX_INITIALIZER;  // another thread may have held it
  for (Numbered& one : g_contexts) one.context.store(0, std::memory_order_relaxed);
}

}  // namespace tandem::shim
