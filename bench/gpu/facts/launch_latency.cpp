// What a launch of an empty kernel takes the thread that makes it, each by itself: the driver, and what
// is preloaded. Each line of stdin is a round. First `up` and a line, as every program under
// `tandem run` here.
//
//   launch_latency IMAGE BATCHES LAUNCHES
//
// Launches of a batch are fewer than the driver takes before it waits for the device.
#include "device.h"
#include "talk.h"

namespace {

bool is_managed() {
  int (*const asked)() = (int (*)())dlsym(RTLD_DEFAULT, "tandem_is_managed_v1");
  return asked != nullptr && asked() == 1;
}

Json round_of(CUfunction empty, CUstream stream, int batches, int launches) {
  std::vector<double> ns, stamps;
  for (int batch = 0; batch < batches; batch++) {
    for (int i = 0; i < launches; i++) {
      const uint64_t begin_ns = now_ns();
      launch(empty, {}, stream);
      const uint64_t end_ns = now_ns();
      ns.push_back((double)(end_ns - begin_ns));
      stamps.push_back((double)(now_ns() - end_ns));
    }
    check(cu().cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
  return event("round")
      .add("launches", (uint64_t)ns.size())
      .add("median_ns", median(ns))
      .add("p99_ns", quantile(ns, 0.99))
      .add("stamp_ns", median(stamps));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int batches = atoi(argv[2]), launches = atoi(argv[3]);
  event("up").print();
  if (!next_order()) return 0;
  const CUfunction empty = function_of(make_module(argv[1]), "empty");
  const CUstream stream = new_stream();
  round_of(empty, stream, batches, launches);  // what a first launch makes is made
  event("ready").add("managed", is_managed()).print();
  while (next_order()) round_of(empty, stream, batches, launches).print();
  return 0;
}
