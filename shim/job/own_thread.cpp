#include "own_thread.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "channel.h"

namespace tandem::shim {
namespace {

using Run = void* (*)(void*);

constexpr uint64_t kJoinNs = 2'000'000'000;  // real time
constexpr unsigned kLookUs = 20;

std::atomic<uint32_t> g_joined{0};

void* begin(void* run) {
  g_clock.sleep_until_ns(0);  // whoever waits on the virtual clock takes part in it from then on
  g_joined.fetch_add(1);
  g_clock.sleep_until_ns(g_clock.now_ns() + 1);  // after whoever started us has come to rest
  return reinterpret_cast<Run>(run)(nullptr);
}

// Virtual time stands for us. Without this it would go on until the new thread is scheduled, which
// is real time's affair, and no run would repeat.
void await_joining(uint32_t before) {
  const uint64_t start_ns = monotonic_ns();
  while (g_joined.load() == before && monotonic_ns() - start_ns < kJoinNs) usleep(kLookUs);
}

}  // namespace

bool start_own_thread(Run run) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits it
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  const uint32_t joined = g_joined.load();
  const bool is_virtual = g_clock.is_virtual();
  const bool made = is_virtual
                        ? pthread_create(&thread, &attributes, begin, reinterpret_cast<void*>(run)) == 0
                        : pthread_create(&thread, &attributes, run, nullptr) == 0;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (made && is_virtual) await_joining(joined);
  return made;
}

}  // namespace tandem::shim
