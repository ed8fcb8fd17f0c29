// Measures how long single launches of an empty kernel take the launching thread: by the driver,
// and by what is preloaded. Each line on stdin starts a round. Like every program here that runs
// under `tandem run`, it first prints `up` and waits for a line.
//
//   launch_latency IMAGE BATCHES LAUNCHES
//
// Rounds without a shim also measure launches followed by the minimum that a shim has to do: write
// a record into a ring that another thread reads, and execute a locked instruction, which waits
// until the driver's writes to the device are out. A batch has fewer launches than the driver
// accepts before it waits for the device.
#include <atomic>
#include <thread>

#include "device.h"
#include "talk.h"

namespace {

bool is_managed() {
  int (*const asked)() = (int (*)())dlsym(RTLD_DEFAULT, "tandem_is_managed_v1");
  return asked != nullptr && asked() == 1;
}

struct alignas(64) Record {
  std::atomic<uint64_t> words[8];
};
constexpr uint64_t kRecords = 1024;  // 64 KiB, like the shim's rings
constexpr auto kReadEvery = std::chrono::microseconds(500);

// What follows each launch. The reader reads every new record, like a daemon.
class Behind {
 public:
  Behind() : reader_([this] { read(); }) {}
  ~Behind() {
    ends_.store(true);
    reader_.join();
  }
  void record() {
    const uint64_t at = head_.load(std::memory_order_relaxed);
    for (std::atomic<uint64_t>& word : records_[at % kRecords].words)
      word.store(at, std::memory_order_relaxed);
    head_.store(at + 1, std::memory_order_release);
  }
  void lock() { own_.fetch_add(1); }

 private:
  void read() {
    uint64_t seen = 0, sum = 0;
    while (!ends_.load()) {
      for (const uint64_t end = head_.load(std::memory_order_acquire); seen < end; seen++)
        sum += records_[seen % kRecords].words[0].load(std::memory_order_relaxed);
      read_.store(sum);
      std::this_thread::sleep_for(kReadEvery);
    }
  }

  Record records_[kRecords] = {};
  alignas(64) std::atomic<uint64_t> head_{0};
  alignas(64) std::atomic<uint64_t> own_{0};
  alignas(64) std::atomic<uint64_t> read_{0};
  std::atomic<bool> ends_{false};
  std::thread reader_;
};

template <class After>
std::vector<double> launches_ns(CUfunction empty, CUstream stream, int batches, int launches,
                                After after) {
  std::vector<double> ns;
  for (int batch = 0; batch < batches; batch++) {
    for (int i = 0; i < launches; i++) {
      const uint64_t begin_ns = now_ns();
      launch(empty, {}, stream);
      after();
      ns.push_back((double)(now_ns() - begin_ns));
    }
    check(cu().cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
  return ns;
}

double stamp_ns(int count) {
  std::vector<double> stamps;
  for (int i = 0; i < count; i++) {
    const uint64_t begin_ns = now_ns();
    stamps.push_back((double)(now_ns() - begin_ns));
  }
  return median(stamps);
}

Json round_of(CUfunction empty, CUstream stream, int batches, int launches) {
  const auto ns = launches_ns(empty, stream, batches, launches, [] {});
  Json found = event("round");
  found.add("launches", (uint64_t)ns.size())
      .add("median_ns", median(ns))
      .add("p99_ns", quantile(ns, 0.99))
      .add("stamp_ns", stamp_ns(launches));
  if (is_managed()) return found;
  Behind behind;
  const auto median_with = [&](auto after) {
    return median(launches_ns(empty, stream, batches, launches, after));
  };
  return found.add("recorded_ns", median_with([&] { behind.record(); }))
      .add("locked_ns", median_with([&] { behind.lock(); }));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const int batches = atoi(argv[2]), launches = atoi(argv[3]);
  event("up").print();
  if (!next_order()) return 0;
  const CUfunction empty = function_of(make_module(argv[1]), "empty");
  const CUstream stream = new_stream();
  round_of(empty, stream, batches, launches);  // so that nothing below is a first launch
  event("ready").add("managed", is_managed()).print();
  while (next_order()) round_of(empty, stream, batches, launches).print();
  return 0;
}
