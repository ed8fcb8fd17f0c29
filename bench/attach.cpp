// Starts many processes that attach at the same moment, each by the protocol of csrc/core/wire.h as
// the shim speaks it: HELLO, WELCOME with three descriptors, maps, MAPPED. Prints one line:
//
//   attached N lost M wall_ns W      (from the start signal to the slowest process)
//
// and then holds the connections until stdin ends.
//
//   attach SOCKET COUNT
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attaching.h"

namespace {

enum { kMaxProcesses = 4096 };

struct Shared {
  volatile uint64_t done_ns[kMaxProcesses];  // 0 = lost; written by that process alone
};

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// The end of the pipe `start` is the start signal: a thousand processes that poll a word would
// starve the machine.
[[noreturn]] void be_one(const char* path, Shared* shared, uint32_t index, const int (&start)[2]) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  close(start[1]);
  char byte;
  while (read(start[0], &byte, 1) > 0) {
  }
  if (bench::attach(path, "crowd")) shared->done_ns[index] = now_ns();
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  const uint32_t count = argc == 3 ? static_cast<uint32_t>(atoi(argv[2])) : 0;
  if (count == 0 || count > kMaxProcesses) return 2;
  auto* shared = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  static pid_t children[kMaxProcesses];
  int start[2];
  if (pipe(start) != 0) return 1;
  uint32_t started = 0;
  for (; started < count; ++started) {
    children[started] = fork();
    if (children[started] < 0) break;  // as many as the machine takes
    if (children[started] == 0) be_one(argv[1], shared, started, start);
  }
  const uint64_t start_ns = now_ns();
  close(start[1]);
  uint32_t attached = 0;
  while (attached < started && now_ns() - start_ns < 20'000'000'000u) {
    attached = 0;
    for (uint32_t i = 0; i < started; ++i) attached += shared->done_ns[i] != 0;
    usleep(1000);
  }
  uint64_t last_ns = start_ns;
  for (uint32_t i = 0; i < started; ++i)
    if (shared->done_ns[i] > last_ns) last_ns = shared->done_ns[i];
  printf("attached %u lost %u wall_ns %llu\n", attached, started - attached,
         static_cast<unsigned long long>(last_ns - start_ns));
  fflush(stdout);
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
  for (uint32_t i = 0; i < started; ++i) kill(children[i], SIGKILL);
  for (uint32_t i = 0; i < started; ++i) waitpid(children[i], nullptr, 0);
  return 0;
}
