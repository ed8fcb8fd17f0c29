#include "own_thread.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "channel.h"
#include "old_glibc.h"

namespace tandem::shim {
namespace {

using Run = void* (*)(void*);

constexpr uint64_t kJoinNs = 2'000'000'000;  // real time
constexpr unsigned kLookUs = 20;

// The start of one thread, shared by the new thread and its creator. The last to let go frees it:
// the other may have given up waiting long before.
struct Start {
  // Null if there is no memory for it.
  static Start* make(Run run) {
    void* const at = std::malloc(sizeof(Start));
    return at == nullptr ? nullptr : new (at) Start{run};
  }
  void let_go() {
    if (owners.fetch_sub(1) == 1) std::free(this);
  }

  const Run run;
  std::atomic<bool> has_joined{false};
  std::atomic<int> owners{2};
};

void* begin(void* argument) {
  auto* const start = static_cast<Start*>(argument);
  const Run run = start->run;
  // Waiting on the virtual clock makes this thread take part in it from here on.
  g_clock.sleep_until_ns(0);
  start->has_joined.store(true);
  start->let_go();
  g_clock.sleep_until_ns(g_clock.now_ns() + 1);  // after the creator has come to rest
  return run(nullptr);
}

// Virtual time stands still while the creator waits here. Without this wait it would go on until
// the new thread is scheduled, which depends on real time, and no run would be reproducible.
void await_joining(const Start& start) {
  const uint64_t start_ns = monotonic_ns();
  while (!start.has_joined.load() && monotonic_ns() - start_ns < kJoinNs) usleep(kLookUs);
}

}  // namespace

bool start_own_thread(Run run) {
  sigset_t all, before;
  sigfillset(&all);
  // On Linux this affects the calling thread alone, and libc has always had it; the new thread
  // inherits it.
  sigprocmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  Start* const start = g_clock.is_virtual() ? Start::make(run) : nullptr;
  const bool made = start != nullptr
                        ? old_glibc::pthread_create(&thread, &attributes, begin, start) == 0
                        : old_glibc::pthread_create(&thread, &attributes, run, nullptr) == 0;
  pthread_attr_destroy(&attributes);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (start != nullptr) {
    if (made) await_joining(*start);
    if (!made) start->let_go();  // on behalf of the thread that was not created
    start->let_go();
  }
  return made;
}

}  // namespace tandem::shim
