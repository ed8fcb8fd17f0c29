// Launches an empty kernel and waits for it, repeatedly, from one line on stdin to the next, to
// measure how other processes affect this one meanwhile. Each second line is answered with how long
// the launches took, in us.
//
//   prober IMAGE
#include "talk.h"

constexpr double kStallUs = 1000;  // a launch that takes longer counts as a stall

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const CUmodule module = make_module(argv[1]);
  auto* const launch = DRIVER(cuLaunchKernel, "cuLaunchKernel");
  auto* const synchronize = DRIVER(cuStreamSynchronize, "cuStreamSynchronize");
  CUfunction nothing;
  CUstream stream;
  check(DRIVER(cuModuleGetFunction, "cuModuleGetFunction")(&nothing, module, "nothing"),
        "function");
  check(DRIVER(cuStreamCreate, "cuStreamCreate")(&stream, CU_STREAM_NON_BLOCKING), "stream");
  const auto once = [&] {
    const uint64_t start_ns = now_ns();
    check(launch(nothing, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr), "launch");
    check(synchronize(stream), "synchronize");
    return us_since(start_ns);
  };
  for (int i = 0; i < 200; i++) once();
  event("ready").print();
  while (next_order()) {
    std::vector<double> took_us;
    double stalled = 0, stalled_us = 0;
    event("began").print();
    const uint64_t start_ns = now_ns();
    do took_us.push_back(once());
    while (!order_waits());
    const double window_us = us_since(start_ns);
    if (!next_order()) break;
    for (const double us : took_us) {
      if (us <= kStallUs) continue;
      stalled++;
      stalled_us += us;
    }
    // Windows differ in length, so only figures relative to their length can be compared.
    event("window")
        .add("launches", (uint64_t)took_us.size())
        .add("median_us", median(took_us))
        .add("p99_us", quantile(took_us, 0.99))
        .add("stalls_per_s", stalled / window_us * 1e6)
        .add("stalled_share", stalled_us / window_us)
        .add("max_us", quantile(took_us, 1))
        .print();
  }
  return 0;
}
