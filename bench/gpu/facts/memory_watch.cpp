// Measures when memory that another process held is free again, according to cuMemGetInfo in this
// process. The target is what was free at the start; each line on stdin makes it wait for that.
//
//   memory_watch IMAGE SLACK_BYTES DEADLINE_S
#include <unistd.h>

#include "talk.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  make_module(argv[1]);
  const uint64_t slack = strtoull(argv[2], nullptr, 10);
  const uint64_t deadline_ns = strtoull(argv[3], nullptr, 10) * 1000000000u;
  auto* const get_info = DRIVER(cuMemGetInfo_v2, "cuMemGetInfo");
  size_t wanted = 0, free = 0, total = 0;
  check(get_info(&wanted, &total), "cuMemGetInfo");
  event("ready").add("free_bytes", (uint64_t)wanted).add("total_bytes", (uint64_t)total).print();
  while (next_order()) {
    const uint64_t start_ns = now_ns();
    double longest_us = 0;
    do {
      const uint64_t call_ns = now_ns();
      check(get_info(&free, &total), "cuMemGetInfo");
      longest_us = std::max(longest_us, us_since(call_ns));
      if (free + slack >= wanted) break;
      usleep(200);
    } while (now_ns() - start_ns < deadline_ns);
    event("back")
        .add("is_back", free + slack >= wanted)
        .add("at_ns", now_ns())
        .add("missing_bytes", (uint64_t)(free < wanted ? wanted - free : 0))
        .add("longest_call_us", longest_us)
        .print();
  }
  return 0;
}
