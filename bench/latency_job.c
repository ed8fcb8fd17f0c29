// A latency-class job for the measurements: a short request every few milliseconds, until stdin ends.
#include <poll.h>
#include <unistd.h>

#include "driver.h"

enum { kLaunches = 4, kPauseMs = 2 };

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const Ready ready = make_ready(argv[1]);
  const auto launch = DRIVER(cuLaunchKernel, "cuLaunchKernel");
  const auto synchronize = DRIVER(cuStreamSynchronize, "cuStreamSynchronize");
  struct pollfd end = {0, POLLIN, 0};
  for (bool said = false;;) {
    for (int i = 0; i < kLaunches; i++)
      check(launch(ready.noop, 1, 1, 1, 32, 1, 1, 0, ready.stream, nullptr, nullptr), "launch");
    check(synchronize(ready.stream), "synchronize");
    if (!said) puts("ready"), fflush(stdout), said = true;
    if (poll(&end, 1, kPauseMs) != 0) return 0;
  }
}
