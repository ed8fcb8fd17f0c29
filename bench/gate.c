// A best-effort job that launches without end and notes when each launch returned, in a file mapped by
// whoever measures: a count, then a ring of CLOCK_MONOTONIC nanoseconds.
//
//   gate IMAGE STAMPS
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

enum { kStamps = 1 << 16, kSyncEvery = 8 };

struct Stamps {
  uint64_t count;  // written after its stamp, release; read by the measuring side, acquire
  uint64_t ns[kStamps];
};

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const Ready ready = make_ready(argv[1]);
  const auto launch = DRIVER(cuLaunchKernel, "cuLaunchKernel");
  const auto synchronize = DRIVER(cuStreamSynchronize, "cuStreamSynchronize");
  const int fd = open(argv[2], O_RDWR);
  if (fd < 0 || ftruncate(fd, sizeof(Stamps)) != 0) return 1;
  auto* stamps = (Stamps*)mmap(nullptr, sizeof(Stamps), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (stamps == MAP_FAILED) return 1;
  for (uint64_t i = 0;; i++) {
    check(launch(ready.noop, 1, 1, 1, 32, 1, 1, 0, ready.stream, nullptr, nullptr), "launch");
    stamps->ns[i % kStamps] = now_ns();
    __atomic_store_n(&stamps->count, i + 1, __ATOMIC_RELEASE);
    if (i % kSyncEvery == 0) check(synchronize(ready.stream), "synchronize");
  }
}
