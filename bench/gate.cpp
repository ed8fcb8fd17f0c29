// A best-effort job that launches in long bursts and records when each launch returned, in a file
// that the measuring program maps: a count, then a ring of CLOCK_MONOTONIC nanoseconds.
//
// Once stdin names the presence page of the job's latency peer and a number of trials, a second
// thread plays that peer: it waits until the job is in the first quarter of a burst, claims to be
// busy for 2 ms, and prints what the stamps then show:
//
//   LAST FIRST   nanoseconds from busy to the last launch that got through (0 = none did), and from
//                the end of busy to the first launch after it
//
//   gate IMAGE STAMPS, then on stdin: PRESENCE TRIALS
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"
#include "shm_layout.h"

enum { kStamps = 1 << 16, kBurst = 256 };
static const uint64_t kBusyNs = 2000000;

struct Stamps {
  uint64_t count;  // stored after the stamp, release; loaded by the measuring side, acquire
  uint64_t ns[kStamps];
};

static Stamps* stamps;

static uint64_t launches(void) { return __atomic_load_n(&stamps->count, __ATOMIC_ACQUIRE); }

static void* map_shared(const char* path, size_t bytes) {
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  void* map = fd < 0 ? MAP_FAILED : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED) perror(path), exit(1);
  return map;
}

// Returns in a burst's first quarter; the rest of the burst takes many times the limit.
static void await_burst(void) {
  for (uint64_t seen = launches();;) {
    const uint64_t now = launches();
    if (now != seen && now % kBurst > 8 && now % kBurst < kBurst / 4) return;
    seen = now;
    __builtin_ia32_pause();
  }
}

static void try_once(tandem::shm::PresencePage* peer) {
  await_burst();
  const uint64_t seen = launches();
  const uint64_t begin_ns = now_ns(), over_ns = begin_ns + kBusyNs;
  peer->busy_until_ns.store(over_ns, std::memory_order_release);  // the shim: acquire
  uint64_t last_ns = begin_ns, first_ns = 0;
  usleep(kBusyNs / 1000);
  for (uint64_t next = seen; first_ns == 0;) {
    if (next == launches()) {
      usleep(100);
      continue;
    }
    const uint64_t at_ns = stamps->ns[next++ % kStamps];
    if (at_ns >= over_ns) first_ns = at_ns;
    else if (at_ns > last_ns) last_ns = at_ns;
  }
  printf("%llu %llu\n", (unsigned long long)(last_ns - begin_ns),
         (unsigned long long)(first_ns - over_ns));
  fflush(stdout);
}

static void* play_peer(void*) {
  char path[256];
  int trials = 0;
  if (scanf("%255s %d", path, &trials) != 2) return nullptr;
  auto* peer = (tandem::shm::PresencePage*)map_shared(path, sizeof(tandem::shm::PresencePage));
  for (int i = 0; i < trials; i++) try_once(peer);
  return nullptr;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const Ready ready = make_ready(argv[1]);
  const auto launch = DRIVER(cuLaunchKernel, "cuLaunchKernel");
  const auto synchronize = DRIVER(cuStreamSynchronize, "cuStreamSynchronize");
  stamps = (Stamps*)map_shared(argv[2], sizeof(Stamps));
  pthread_t peer;
  if (pthread_create(&peer, nullptr, play_peer, nullptr) != 0) return 1;
  for (uint64_t i = 0;; i++) {
    check(launch(ready.noop, 1, 1, 1, 32, 1, 1, 0, ready.stream, nullptr, nullptr), "launch");
    stamps->ns[i % kStamps] = now_ns();
    __atomic_store_n(&stamps->count, i + 1, __ATOMIC_RELEASE);
    if (i % kBurst == kBurst - 1) check(synchronize(ready.stream), "synchronize");
  }
}
