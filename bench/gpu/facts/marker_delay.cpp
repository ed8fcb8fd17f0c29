// Measures how long after a kernel's last act the host sees its marker: the kernel and the marker
// write into the same page, which the host polls. The same for an event that is queried.
//
//   marker_delay KERNELS SAMPLES KERNEL_US
#include "page.h"

namespace {

enum { kFlag, kMarker, kOut };

struct Delays {
  std::vector<double> us;
  double before_flag = 0;  // the marker was visible, and the kernel's earlier write was not
  double not_seen = 0;
};

class Stage {
 public:
  Stage(CUmodule module, double kernel_us)
      : page_(shared_page()), flagging_(function_of(module, "flagging")) {
    iterations_ = calibrate(stream_, kernel_us, [&](uint64_t n) { submit(n, 0); });
  }

  // `put` submits the marker with that number behind the kernel, `is_there` asks for it.
  template <typename Put, typename Ask>
  Delays sample(int samples, Put put, Ask is_there) {
    Delays delays;
    enum { kPatience = 3 };  // each marker that is not seen costs a whole deadline
    for (int i = 0; i < samples && delays.not_seen < kPatience; i++) {
      const uint64_t value = ++value_;
      submit(iterations_, value);
      check(put(stream_, value), "marker");
      look(value, is_there, delays);
      check(cu().cuStreamSynchronize(stream_), "cuStreamSynchronize");
    }
    return delays;
  }

  Page& page() const { return page_; }

 private:
  void submit(uint64_t iterations, uint64_t value) {
    launch(flagging_, {}, stream_, iterations, 0.0f, page_.device_line(kFlag), value);
  }

  template <typename Ask>
  void look(uint64_t value, Ask is_there, Delays& delays) {
    const Word& flag = page_.line(kFlag);
    uint64_t flag_ns = 0, marker_ns = 0;
    const bool both = poll([&] {
      if (!flag_ns && flag.load(std::memory_order_acquire) == value) flag_ns = now_ns();
      if (!marker_ns && is_there(value)) {
        marker_ns = now_ns();
        delays.before_flag += flag.load(std::memory_order_acquire) != value;
      }
      return flag_ns && marker_ns;
    });
    if (both) delays.us.push_back(((double)marker_ns - (double)flag_ns) * 1e-3);
    delays.not_seen += !both;
  }

  Page& page_;
  CUfunction flagging_;
  CUstream stream_ = new_stream();
  uint64_t iterations_ = 0, value_ = 0;
};

Json summary(const Delays& delays) {
  return Json()
      .add("median_us", median(delays.us))
      .add("p99_us", quantile(delays.us, 0.99))
      .add("samples", (double)delays.us.size())
      .add("before_what_the_kernel_wrote", delays.before_flag)
      .add("not_seen", delays.not_seen);
}

}  // namespace

int main(int, char** arguments) {
  const CUmodule module = make_module(arguments[1]);
  const int samples = atoi(arguments[2]);
  Stage stage(module, atof(arguments[3]));
  Json said;
  const CUresult result = write_value(new_stream(), stage.page().device_line(kOut), 1);
  said.add("write_result", name_of(result));
  if (result == CUDA_SUCCESS) {
    const auto put = [&](CUstream stream, uint64_t value) {
      return write_value(stream, stage.page().device_line(kMarker), value);
    };
    const auto ask = [&](uint64_t value) {
      return stage.page().line(kMarker).load(std::memory_order_acquire) == value;
    };
    said.add("write", summary(stage.sample(samples, put, ask)));
  }
  const CUevent event = new_event(CU_EVENT_DISABLE_TIMING);
  const auto put = [&](CUstream stream, uint64_t) { return cu().cuEventRecord(event, stream); };
  const auto ask = [&](uint64_t) { return cu().cuEventQuery(event) == CUDA_SUCCESS; };
  said.add("event", summary(stage.sample(samples, put, ask))).print();
  return 0;
}
