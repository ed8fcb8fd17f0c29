// Finds out which markers a thread may put into a stream while another thread captures another
// stream in global mode, and what it may do with memory during captures of either mode: the results
// of the calls, and whether the capture survives them. Finally, what calls return in a failed
// context.
//
//   marker_capture KERNELS
#include <condition_variable>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <thread>

#include "chunks.h"
#include "page.h"

namespace {

// Another thread that captures from construction until end().
class Capture {
 public:
  Capture(CUfunction kernel, unsigned stream_flags, CUstreamCaptureMode mode)
      : thread_([this, kernel, stream_flags, mode] { hold(kernel, stream_flags, mode); }) {
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
  void hold(CUfunction kernel, unsigned stream_flags, CUstreamCaptureMode mode) {
    CUcontext context = nullptr;
    check(DRIVER(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")(&context, 0), "retain");
    check(DRIVER(cuCtxSetCurrent, "cuCtxSetCurrent")(context), "cuCtxSetCurrent");
    CUstream stream = nullptr;
    check(cu().cuStreamCreate(&stream, stream_flags), "cuStreamCreate");
    const CUresult begun = DRIVER(cuStreamBeginCapture_v2, "cuStreamBeginCapture")(stream, mode);
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
  std::thread thread_;  // last: it uses the other members
};

// Sets the thread's capture mode during this object's lifetime; a thread starts in global mode.
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
    launch(kernel_, {}, stream_);  // a first launch may load the kernel: not during a capture
  }

  Json in_mode(CUstreamCaptureMode mode) {
    Json said;
    for (const Where& where : kWhere) {
      const CUstream stream = where.legacy ? nullptr : stream_;
      // Recorded before the capture, so that it may be queried.
      check(cu().cuEventRecord(asked_, stream), "cuEventRecord");
      check(cu().cuStreamSynchronize(stream), "cuStreamSynchronize");
      const auto during = [&](const std::function<CUresult()>& call) {
        return during_capture(mode, where.capturing, CU_STREAM_CAPTURE_MODE_GLOBAL, call);
      };
      Json calls;
      calls.add("write", during([&] { return write_value(stream, page_.device_line(0), 1); }));
      calls.add("record", during([&] { return cu().cuEventRecord(recorded_, stream); }));
      calls.add("query", during([&] { return cu().cuEventQuery(asked_); }));
      said.add(where.name, calls);
    }
    return said;
  }

  // Calls of a thread in mode `ours` during a capture in mode `theirs`.
  Json of_memory(CUstreamCaptureMode ours, CUstreamCaptureMode theirs) {
    const auto during = [&](const std::function<CUresult()>& call) {
      return during_capture(ours, CU_STREAM_NON_BLOCKING, theirs, call);
    };
    static auto* const release = DRIVER(cuMemFree_v2, "cuMemFree");
    CUdeviceptr fresh = 0, held = 0;
    Json calls;
    calls.add("allocate", during([&] { return cu().cuMemAlloc_v2(&fresh, kBytes); }));
    if (fresh) check(release(fresh), "cuMemFree");
    check(cu().cuMemAlloc_v2(&held, kBytes), "cuMemAlloc");
    CUresult freed = CUDA_SUCCESS;
    calls.add("free", during([&] { return freed = release(held); }));
    if (freed != CUDA_SUCCESS) check(release(held), "cuMemFree");
    calls.add("map", during([] { return map_and_unmap(); }));
    calls.add("info", during([] { return info(); }));
    calls.add("synchronize", during([] { return synchronize(); }));
    return calls;
  }

  // Leaves the context unusable.
  static Json of_failed_context(CUmodule module) {
    launch(function_of(module, "work"), {}, new_stream(), uint64_t{1}, 1.0f, (float*)kNowhere);
    Json calls;
    calls.add("synchronize", name_of(synchronize()));
    calls.add("info", name_of(info()));
    CUstream stream = nullptr;
    calls.add("new_stream", name_of(cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING)));
    return calls;
  }

 private:
  static constexpr size_t kBytes = 4 << 20;
  static constexpr uintptr_t kNowhere = 64;

  static CUresult synchronize() { return DRIVER(cuCtxSynchronize, "cuCtxSynchronize")(); }
  static CUresult info() {
    size_t free_bytes = 0, total_bytes = 0;
    return DRIVER(cuMemGetInfo_v2, "cuMemGetInfo")(&free_bytes, &total_bytes);
  }
  static CUresult map_and_unmap() {
    const ChunkCalls calls;
    const CUmemAllocationProp properties = chunk_properties(true);
    CUmemAccessDesc access = {};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUdeviceptr at = 0;
    CUmemGenericAllocationHandle handle = 0;
    for (const auto& call : std::initializer_list<std::function<CUresult()>>{
             [&] { return calls.reserve(&at, kBytes, 0, 0, 0); },
             [&] { return calls.create(&handle, kBytes, &properties, 0); },
             [&] { return calls.map(at, kBytes, 0, handle, 0); },
             [&] { return calls.set_access(at, kBytes, &access, 1); },
             [&] { return calls.unmap(at, kBytes); }, [&] { return calls.release(handle); },
             [&] { return calls.free(at, kBytes); }}) {
      if (const CUresult result = call(); result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  }

  Json during_capture(CUstreamCaptureMode mode, unsigned capturing, CUstreamCaptureMode theirs,
                      const std::function<CUresult()>& call) {
    Capture capture(kernel_, capturing, theirs);
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
  const CUmodule module = make_module(arguments[1]);
  Stage stage(module);
  Json said, memory;
  said.add("default", stage.in_mode(CU_STREAM_CAPTURE_MODE_GLOBAL));
  said.add("relaxed", stage.in_mode(CU_STREAM_CAPTURE_MODE_RELAXED));
  memory.add("default_beside_thread_local",
             stage.of_memory(CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  memory.add("relaxed_beside_global",
             stage.of_memory(CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_GLOBAL));
  said.add("memory", memory);
  said.add("failed", Stage::of_failed_context(module)).print();
  return 0;
}
