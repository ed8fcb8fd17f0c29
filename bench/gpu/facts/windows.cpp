// One of two programs that share the GPU. It launches kernels that record what the device did with
// them, at random arrival times or as many at once as it may, and takes orders on stdin.
//
//   windows KERNELS normal|greatest|least      the priority of its stream
//
//   calibrate BLOCKS THREADS US                how many iterations such a kernel takes
//   compare                                    the device's clock with the host's
//   run BLOCKS THREADS ITERATIONS DEPTH GAP_NS BEGIN_NS END_NS FILE
//   end
//
// DEPTH: at most so many launches are submitted and not yet seen to have ended. GAP_NS: mean time
// between arrivals, which do not wait for anything; 0: the next launch comes as soon as DEPTH
// allows. Times are those of CLOCK_MONOTONIC. FILE gets a row of words per launch: arrival,
// submission and observed end by the host's clock; begin, end, number of gaps and these gaps (from,
// to) by the device's. 0: no such stamp.
#include <inttypes.h>
#include <sched.h>
#include <string.h>

#include <random>
#include <thread>

#include "device.h"

namespace {

// The same as in work.cu.
enum { kBegin, kEnd, kGapCount, kGaps, kGapRoom = 128, kRecordWords = kGaps + 2 * kGapRoom };

constexpr size_t kMostLaunches = 1 << 15, kRecordBytes = kRecordWords * 8;
constexpr unsigned kMostDepth = 1024;
constexpr double kDrainS = 4;  // after the end; what is unfinished then is reported
constexpr unsigned kSeed = 20261120;

struct Order {
  Grid grid;
  uint64_t iterations = 0, gap_ns = 0, begin_ns = 0, end_ns = 0;
  unsigned depth = 1;
  char file[512] = "";
};

struct Launch {
  uint64_t arrival_ns, submitted_ns, done_ns;
};

// What to add to the host's clock to get the device's; 0 if the device has none.
struct Clocks {
  int64_t offset_ns = 0;
  uint64_t error_ns = 0, step_ns = 0;
  bool has_device = false;
};

class Program {
 public:
  Program(CUmodule module, int priority)
      : stamped_(function_of(module, "stamped")), clock_(function_of(module, "clock_now")) {
    check(cu().cuStreamCreateWithPriority(&stream_, CU_STREAM_NON_BLOCKING, priority), "stream");
    check(cu().cuMemAlloc_v2(&records_, kMostLaunches * kRecordBytes), "cuMemAlloc");
    check(cu().cuMemAlloc_v2(&now_, 16), "cuMemAlloc");
    for (auto& event : events_) event = new_event(CU_EVENT_DISABLE_TIMING);
    clear(kMostLaunches);
  }

  Json calibrated(Grid grid, double us) {
    const auto submit = [&](uint64_t iterations) { submit_kernel(grid, iterations, 0); };
    const uint64_t iterations = calibrate(stream_, us, submit);
    const double kernel_us = device_us(stream_, [&] {
      for (int i = 0; i < 8; i++) submit(iterations);
    });
    clear(1);
    return Json()
        .add("event", "calibrated")
        .add("iterations", (double)iterations)
        .add("kernel_us", kernel_us / 8);
  }

  // Before a run, while nothing else runs: then the comparison is narrow.
  Json compared() {
    const Clocks clocks = compare_clocks();
    return Json()
        .add("event", "compared")
        .add("has_device_clock", clocks.has_device)
        .add("offset_ns", std::to_string(clocks.offset_ns))
        .add("error_ns", (double)clocks.error_ns)
        .add("step_ns", (double)clocks.step_ns);
  }

  Json ran(const Order& order) {
    launches_.clear();
    head_ = tail_ = deepest_ = 0;
    longest_call_ns_ = 0;
    const uint64_t given_up_at_ns = order.end_ns + (uint64_t)(kDrainS * 1e9);
    std::mt19937_64 random(kSeed);
    std::exponential_distribution<double> gap(1.0 / (double)std::max<uint64_t>(order.gap_ns, 1));
    sleep_until(order.begin_ns);
    double next_ns = (double)order.begin_ns + (order.gap_ns ? gap(random) : 0);
    double late = 0;
    for (;;) {
      const bool moved = see_ends();
      const uint64_t now = now_ns();
      const bool comes = order.gap_ns ? next_ns < (double)order.end_ns : now < order.end_ns;
      if (!comes && head_ == tail_) break;
      if (now > given_up_at_ns) {
        late = comes;
        break;
      }
      if (comes && (double)now >= next_ns && head_ - tail_ < order.depth && head_ < kMostLaunches) {
        submit(order, order.gap_ns ? (uint64_t)next_ns : now);
        if (order.gap_ns) next_ns += gap(random);
      } else if (!moved) {
        sched_yield();  // for machines with few cores
      }
    }
    const double unfinished = (double)(head_ - tail_) + late;
    check(cu().cuStreamSynchronize(stream_), "cuStreamSynchronize");
    write_rows(order.file);
    clear(launches_.size());
    return Json()
        .add("event", "ran")
        .add("launches", (double)launches_.size())
        .add("unfinished", unfinished)
        .add("deepest", (double)deepest_)
        .add("longest_call_us", (double)longest_call_ns_ / 1e3)
        .add("gaps_lost", gaps_lost_);
  }

 private:
  void submit_kernel(Grid grid, uint64_t iterations, size_t index) {
    // One thread in every sms_ / 2 blocks watches the clock, so that one of them is always running.
    const unsigned look_every = std::max(1u, (unsigned)sms_ / 2);
    launch(stamped_, grid, stream_, records_ + index * kRecordBytes, iterations, 0.0f, look_every);
  }

  void clear(size_t records) {
    check(cu().cuMemsetD8_v2(records_, 0, records * kRecordBytes), "cuMemsetD8");
    // Our stream does not wait for this by itself.
    check(cu().cuStreamSynchronize(nullptr), "cuStreamSynchronize");
  }

  void submit(const Order& order, uint64_t arrival_ns) {
    const uint64_t submitted_ns = now_ns();
    submit_kernel(order.grid, order.iterations, head_);
    check(cu().cuEventRecord(events_[head_ % kMostDepth], stream_), "cuEventRecord");
    launches_.push_back({arrival_ns, submitted_ns, 0});
    head_++;
    deepest_ = std::max(deepest_, head_ - tail_);
    longest_call_ns_ = std::max(longest_call_ns_, now_ns() - submitted_ns);
  }

  bool see_ends() {
    const size_t before = tail_;
    while (tail_ < head_) {
      const CUresult result = cu().cuEventQuery(events_[tail_ % kMostDepth]);
      if (result == CUDA_ERROR_NOT_READY) break;
      check(result, "cuEventQuery");
      launches_[tail_++].done_ns = now_ns();
    }
    return tail_ != before;
  }

  // Returns the most precise of several comparisons. In each, the device's clock is read between
  // two readings of the host's.
  Clocks compare_clocks() {
    Clocks best;
    best.error_ns = ~uint64_t{0};
    for (int i = 0; i < 20; i++) {
      uint64_t device[2] = {};
      const uint64_t before = now_ns();
      launch(clock_, {1, 1}, stream_, now_);
      check(cu().cuStreamSynchronize(stream_), "cuStreamSynchronize");
      const uint64_t after = now_ns();
      check(cu().cuMemcpyDtoH_v2(device, now_, sizeof device), "cuMemcpyDtoH");
      if ((after - before) / 2 >= best.error_ns) continue;
      best.error_ns = (after - before) / 2;
      best.has_device = device[0] != 0;
      best.step_ns = device[1];
      best.offset_ns = best.has_device ? (int64_t)(device[0] - (before + best.error_ns)) : 0;
    }
    return best;
  }

  static void sleep_until(uint64_t at_ns) {
    while (now_ns() + 200'000 < at_ns) std::this_thread::sleep_for(std::chrono::microseconds(50));
    while (now_ns() < at_ns) sched_yield();
  }

  void write_rows(const char* path) {
    std::vector<uint64_t> records(launches_.size() * kRecordWords), row;
    if (!records.empty())
      check(cu().cuMemcpyDtoH_v2(records.data(), records_, records.size() * 8), "cuMemcpyDtoH");
    gaps_lost_ = 0;
    FILE* file = fopen(path, "wb");
    if (file == nullptr) {
      perror(path);
      exit(1);
    }
    for (size_t i = 0; i < launches_.size(); i++) {
      const uint64_t* record = &records[i * kRecordWords];
      const uint64_t gaps = std::min<uint64_t>(record[kGapCount], kGapRoom);
      gaps_lost_ += (double)(record[kGapCount] - gaps);
      const uint64_t begin_ns = record[kBegin] ? ~record[kBegin] : 0;
      row = {launches_[i].arrival_ns,
             launches_[i].submitted_ns,
             launches_[i].done_ns,
             begin_ns,
             record[kEnd],
             gaps};
      row.insert(row.end(), record + kGaps, record + kGaps + 2 * gaps);
      fwrite(row.data(), 8, row.size(), file);
    }
    fclose(file);
  }

  CUfunction stamped_, clock_;
  CUstream stream_ = nullptr;
  CUdeviceptr records_ = 0, now_ = 0;
  CUevent events_[kMostDepth];
  std::vector<Launch> launches_;
  size_t head_ = 0, tail_ = 0, deepest_ = 0;
  uint64_t longest_call_ns_ = 0;  // longest launch call: the driver waits while its queue is full
  double gaps_lost_ = 0;
  int sms_ = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
};

// Returns false if that was the last order.
bool obey(Program& program, const char* line) {
  Order order;
  double us = 0;
  if (sscanf(line, "calibrate %u %u %lf", &order.grid.blocks, &order.grid.threads, &us) == 3) {
    program.calibrated(order.grid, us).print();
  } else if (sscanf(line, "run %u %u %" SCNu64 " %u %" SCNu64 " %" SCNu64 " %" SCNu64 " %511s",
                    &order.grid.blocks, &order.grid.threads, &order.iterations, &order.depth,
                    &order.gap_ns, &order.begin_ns, &order.end_ns, order.file) == 8) {
    order.depth = std::min(order.depth, kMostDepth);
    program.ran(order).print();
  } else if (strcmp(line, "compare\n") == 0) {
    program.compared().print();
  } else if (strcmp(line, "end\n") == 0) {
    return false;
  } else {
    fprintf(stderr, "no such order: %s", line);
    exit(2);
  }
  return true;
}

}  // namespace

int main(int, char** arguments) {
  const CUmodule module = make_module(arguments[1]);
  int least = 0, greatest = 0;
  check(cu().cuCtxGetStreamPriorityRange(&least, &greatest), "cuCtxGetStreamPriorityRange");
  const bool high = strcmp(arguments[2], "greatest") == 0, low = strcmp(arguments[2], "least") == 0;
  Program program(module, high ? greatest : low ? least : 0);
  Json()
      .add("event", "up")
      .add("sms", (double)attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT))
      .add("threads_per_sm", (double)attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR))
      .add("least_priority", (double)least)
      .add("greatest_priority", (double)greatest)
      .print();
  char line[1024];
  while (fgets(line, sizeof line, stdin) != nullptr && obey(program, line)) {
  }
  return 0;
}
