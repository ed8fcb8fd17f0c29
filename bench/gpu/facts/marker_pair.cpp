// Runs two kernels of which the second may begin before the first has ended (programmatic stream
// serialisation), to see whether it does, and whether it still does with a marker between them.
//
//   marker_pair KERNELS PAIRS ROUNDS KERNEL_US
#include <map>

#include "page.h"

namespace {

constexpr Grid kGrid = {8, 128};  // leaves SMs for the other kernel

class Stage {
 public:
  Stage(CUmodule module, double kernel_us)
      : page_(shared_page()),
        releasing_(function_of(module, "releasing")),
        work_(function_of(module, "work")) {
    iterations_ = calibrate(stream_, kernel_us, [&](uint64_t n) { submit(work_, n, false); });
  }

  // Returns the device time per pair, in us, with what `between` submits between the two.
  template <typename Between>
  double pair_us(int pairs, bool programmatic, Between between) {
    submit(work_, 40 * iterations_, false);  // holds the stream until all is submitted
    const double us = device_us(stream_, [&] {
      for (int i = 0; i < pairs; i++) {
        submit(releasing_, iterations_, false);
        between(i);
        submit(work_, iterations_, programmatic);
      }
    });
    return us / pairs;
  }

  CUstream stream() const { return stream_; }
  Page& page() const { return page_; }

 private:
  void submit(CUfunction function, uint64_t iterations, bool programmatic) {
    static auto* const launch_ex = DRIVER(cuLaunchKernelEx, "cuLaunchKernelEx");
    float seed = 0;
    CUdeviceptr out = page_.device_line(9);
    void* parameters[] = {&iterations, &seed, &out};
    CUlaunchAttribute serialisation{};
    serialisation.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    serialisation.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{};
    config.gridDimX = kGrid.blocks;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = kGrid.threads;
    config.hStream = stream_;
    config.attrs = &serialisation;
    config.numAttrs = programmatic;
    check(launch_ex(&config, function, parameters, nullptr), "cuLaunchKernelEx");
  }

  Page& page_;
  CUfunction releasing_, work_;
  CUstream stream_ = new_stream();
  uint64_t iterations_ = 0;
};

}  // namespace

int main(int, char** arguments) {
  const CUmodule module = make_module(arguments[1]);
  const int pairs = atoi(arguments[2]), rounds = atoi(arguments[3]);
  Stage stage(module, atof(arguments[4]));
  const CUresult written = write_value(stage.stream(), stage.page().device_line(0), 1);
  const CUevent untimed = new_event(CU_EVENT_DISABLE_TIMING), timed = new_event(CU_EVENT_DEFAULT);
  const auto nothing = [](int) {};
  const auto write = [&](int i) {
    check(write_value(stage.stream(), stage.page().device_line(0), (uint64_t)i), "marker");
  };
  const auto record = [&](CUevent event) { cu().cuEventRecord(event, stage.stream()); };
  std::map<std::string, std::vector<double>> us;
  for (int round = 0; round < rounds; round++) {
    us["serial"].push_back(stage.pair_us(pairs, false, nothing));
    us["programmatic"].push_back(stage.pair_us(pairs, true, nothing));
    if (written == CUDA_SUCCESS) us["with_write"].push_back(stage.pair_us(pairs, true, write));
    us["with_event"].push_back(stage.pair_us(pairs, true, [&](int) { record(untimed); }));
    us["with_timed_event"].push_back(stage.pair_us(pairs, true, [&](int) { record(timed); }));
  }
  Json said;
  for (const auto& [name, values] : us) said.add((name + "_us").c_str(), median(values));
  said.add("write_result", name_of(written)).print();
  return 0;
}
