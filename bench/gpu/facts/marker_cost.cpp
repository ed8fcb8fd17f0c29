// Measures what markers cost: runs of launches with a marker, of several kinds, after every 1, 4,
// 16 or 64 of them, in turn. A whole run is submitted while an earlier kernel still occupies the
// stream, so that the host's time is for submission alone, and the device's for a full queue.
//
//   marker_cost KERNELS ROUNDS LAUNCHES HOLD_US
//
// Prints the figures by round: only those of the same round are to be compared.
#include <map>

#include "page.h"

namespace {

constexpr int kEvery[] = {1, 4, 16, 64};
constexpr double kKernelUs = 5;
enum class Mark { kNone, kWrite, kEvent, kTimed };
const std::pair<Mark, const char*> kMarks[] = {
    {Mark::kWrite, "write"}, {Mark::kEvent, "event"}, {Mark::kTimed, "timed_pair"}};

struct Run {
  Mark mark;
  int every;
  std::string name;
  std::vector<double> host_ns, device_us;  // of each launch, by round
  double late = 0;  // rounds that the device reached before they were submitted
};

class Stage {
 public:
  Stage(CUmodule module, int launches, double hold_us)
      : launches_(launches),
        hold_us_(hold_us),
        work_(function_of(module, "work")),
        empty_(function_of(module, "empty")),
        page_(shared_page()) {
    for (auto& event : events_) event = new_event(CU_EVENT_DISABLE_TIMING);
    for (auto& event : timed_) event = new_event(CU_EVENT_DEFAULT);
    hold_iterations_ = calibrate(stream_, hold_us, [&](uint64_t n) { submit_work(n); });
    iterations_ = calibrate(stream_, kKernelUs, [&](uint64_t n) { submit_work(n); });
  }

  // Returns how the driver answers the first marker of a kind.
  CUresult try_mark(Mark mark) {
    begin_mark(mark, 0);
    const CUresult result = end_mark(mark, 0);
    check(cu().cuStreamSynchronize(stream_), "cuStreamSynchronize");
    return result;
  }

  void run(Run& run, bool empty) {
    uint64_t host_ns = 0;
    submit_work(hold_iterations_);
    const double us = device_us(stream_, [&] {
      const uint64_t begin_ns = now_ns();
      for (int i = 0; i < launches_; i++) submit(run, i, empty);
      host_ns = now_ns() - begin_ns;
    });
    run.host_ns.push_back((double)host_ns / launches_);
    run.device_us.push_back(us / launches_);
    run.late += (double)host_ns > 0.8 * hold_us_ * 1e3;
  }

  double kernel_us() {
    return device_us(stream_,
                     [&] {
                       for (int i = 0; i < 64; i++) submit_work(iterations_);
                     }) /
           64;
  }

 private:
  void submit_work(uint64_t iterations) {
    launch(work_, {}, stream_, iterations, 0.0f, page_.device_line(9));
  }
  void submit(const Run& run, int i, bool empty) {
    const bool marked = run.mark != Mark::kNone && (i + 1) % run.every == 0;
    if (marked) begin_mark(run.mark, i);
    if (empty) {
      launch(empty_, {}, stream_);
    } else {
      submit_work(iterations_);
    }
    if (marked) check(end_mark(run.mark, i), "marker");
  }
  void begin_mark(Mark mark, int i) {
    if (mark == Mark::kTimed)
      check(cu().cuEventRecord(timed_[2 * i % kEvents], stream_), "cuEventRecord");
  }
  CUresult end_mark(Mark mark, int i) {
    if (mark == Mark::kWrite) return write_value(stream_, page_.device_line(0), (uint64_t)i + 1);
    const CUevent event =
        mark == Mark::kTimed ? timed_[(2 * i + 1) % kEvents] : events_[i % kEvents];
    return cu().cuEventRecord(event, stream_);
  }

  static constexpr int kEvents = 128;
  int launches_;
  double hold_us_;
  CUfunction work_, empty_;
  Page& page_;
  CUstream stream_ = new_stream();
  CUevent events_[kEvents], timed_[kEvents];
  uint64_t hold_iterations_ = 0, iterations_ = 0;
};

std::vector<Run> runs_of(Stage& stage, Json& refused) {
  std::vector<Run> runs = {{Mark::kNone, 1, "none", {}, {}, 0}};
  for (const auto& [mark, name] : kMarks) {
    const CUresult result = stage.try_mark(mark);
    if (result != CUDA_SUCCESS) {
      refused.add(name, name_of(result));
      continue;
    }
    for (const int every : kEvery)
      runs.push_back({mark, every, std::string(name) + "_" + std::to_string(every), {}, {}, 0});
  }
  return runs;
}

Json rounds_of(Stage& stage, bool empty, int rounds, Json& refused, Json& late) {
  std::vector<Run> runs = runs_of(stage, refused);
  for (int round = 0; round <= rounds; round++) {
    // Start each round with a different run, since the first one in a round meets a colder machine.
    for (size_t i = 0; i < runs.size(); i++)
      stage.run(runs[(i + (size_t)round) % runs.size()], empty);
  }
  Json figures;
  for (Run& run : runs) {
    run.host_ns.erase(run.host_ns.begin());  // the first round is for warming up
    run.device_us.erase(run.device_us.begin());
    figures.add(run.name.c_str(),
                Json().add("host_ns", run.host_ns).add("device_us", run.device_us));
    if (run.late > 0) late.add(((empty ? "empty_" : "five_") + run.name).c_str(), run.late);
  }
  return figures;
}

}  // namespace

int main(int, char** arguments) {
  const CUmodule module = make_module(arguments[1]);
  const int rounds = atoi(arguments[2]), launches = atoi(arguments[3]);
  Stage stage(module, launches, atof(arguments[4]));
  Json said, refused, late;
  said.add("kernel_us", stage.kernel_us());
  said.add("empty", rounds_of(stage, true, rounds, refused, late));
  said.add("five", rounds_of(stage, false, rounds, refused, late));
  said.add("refused", refused).add("late", late).print();
  return 0;
}
