// Which markers a thread may put into a stream while another thread captures another stream in
// global mode: what the calls come to, and whether the capture survives them.
//
//   marker_capture KERNELS
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "page.h"

namespace {

// Another thread with a capture, from construction until end().
class Capture {
 public:
  Capture(CUfunction kernel, unsigned stream_flags)
      : thread_([this, kernel, stream_flags] { hold(kernel, stream_flags); }) {
    wait_for([&] { return begun_; });
  }
  ~Capture() {
    if (thread_.joinable()) end();
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  CUresult end() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
    return ended_;
  }

 private:
  template <typename Condition>
  void wait_for(Condition condition) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, condition);
  }
  void hold(CUfunction kernel, unsigned stream_flags) {
    CUcontext context = nullptr;
    check(DRIVER(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")(&context, 0), "retain");
    check(DRIVER(cuCtxSetCurrent, "cuCtxSetCurrent")(context), "cuCtxSetCurrent");
    CUstream stream = nullptr;
    check(cu().cuStreamCreate(&stream, stream_flags), "cuStreamCreate");
    const CUresult begun = DRIVER(cuStreamBeginCapture_v2, "cuStreamBeginCapture")(
        stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    check(begun, "cuStreamBeginCapture");
    launch(kernel, {}, stream);
    {
      const std::lock_guard lock(mutex_);
      begun_ = true;
    }
    changed_.notify_all();
    wait_for([&] { return over_; });
    CUgraph graph = nullptr;
    ended_ = DRIVER(cuStreamEndCapture, "cuStreamEndCapture")(stream, &graph);
    DRIVER(cuStreamDestroy_v2, "cuStreamDestroy")(stream);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool begun_ = false, over_ = false;
  CUresult ended_ = CUDA_SUCCESS;
  std::thread thread_;  // last: it uses the others
};

// The thread's own mode for as long as this lives; a thread begins in that of global captures.
class Mode {
 public:
  explicit Mode(CUstreamCaptureMode mode) : mode_(mode) { exchange(); }
  ~Mode() { exchange(); }
  Mode(const Mode&) = delete;
  Mode& operator=(const Mode&) = delete;

 private:
  void exchange() {
    check(DRIVER(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode")(&mode_),
          "cuThreadExchangeStreamCaptureMode");
  }
  CUstreamCaptureMode mode_;
};

struct Where {
  const char* name;
  bool legacy;
  unsigned capturing;  // flags of the stream that captures
};
constexpr Where kWhere[] = {
    {"stream", false, CU_STREAM_NON_BLOCKING},
    {"legacy_stream", true, CU_STREAM_NON_BLOCKING},
    {"legacy_stream_beside_a_blocking_one", true, CU_STREAM_DEFAULT},
};

class Stage {
 public:
  explicit Stage(CUmodule module) : kernel_(function_of(module, "empty")), page_(shared_page()) {
    launch(kernel_, {}, stream_);  // the first one may load it, which no capture has to do with
  }

  Json in_mode(CUstreamCaptureMode mode) {
    Json said;
    for (const Where& where : kWhere) {
      const CUstream stream = where.legacy ? nullptr : stream_;
      // Recorded before the capture: this one may be asked about.
      check(cu().cuEventRecord(asked_, stream), "cuEventRecord");
      check(cu().cuStreamSynchronize(stream), "cuStreamSynchronize");
      const auto during = [&](const std::function<CUresult()>& call) {
        return during_capture(mode, where.capturing, call);
      };
      Json calls;
      calls.add("write", during([&] { return write_value(stream, page_.device_line(0), 1); }));
      calls.add("record", during([&] { return cu().cuEventRecord(recorded_, stream); }));
      calls.add("query", during([&] { return cu().cuEventQuery(asked_); }));
      said.add(where.name, calls);
    }
    return said;
  }

 private:
  Json during_capture(CUstreamCaptureMode mode, unsigned capturing,
                      const std::function<CUresult()>& call) {
    Capture capture(kernel_, capturing);
    CUresult result;
    {
      const Mode ours(mode);
      result = call();
    }
    return Json().add("result", name_of(result)).add("capture_ends", name_of(capture.end()));
  }

  CUfunction kernel_;
  Page& page_;
  CUstream stream_ = new_stream();
  CUevent asked_ = new_event(CU_EVENT_DISABLE_TIMING);
  CUevent recorded_ = new_event(CU_EVENT_DISABLE_TIMING);
};

}  // namespace

int main(int, char** arguments) {
  Stage stage(make_module(arguments[1]));
  Json said;
  said.add("default", stage.in_mode(CU_STREAM_CAPTURE_MODE_GLOBAL));
  said.add("relaxed", stage.in_mode(CU_STREAM_CAPTURE_MODE_RELAXED)).print();
  return 0;
}
