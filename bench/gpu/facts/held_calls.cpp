// Finds out which calls return while the device is blocked. One stream waits for a value that only
// the host writes: with one kernel queued behind the wait (`held`), and then with as many as the
// driver accepts, so that another thread is blocked in a launch (`full`). A call that does not
// return is released by writing the value.
//
//   held_calls KERNELS
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "chunks.h"
#include "green.h"
#include "page.h"

namespace {

constexpr std::chrono::milliseconds kPatience(100), kLook(5);
constexpr int kUnmovedLooks = 10;
constexpr uint64_t kMostLaunches = 1 << 16;

// A stream that makes no progress between hold() and release().
class Held {
 public:
  explicit Held(CUfunction kernel) : page_(shared_page()), kernel_(kernel), stream_(new_stream()) {}
  void hold() {
    check(wait_(stream_, page_.device_line(0), ++value_, CU_STREAM_WAIT_VALUE_GEQ),
          "cuStreamWaitValue32");
    add();
  }
  void add() const { launch(kernel_, {}, stream_); }
  void release() const { page_.line(0).store(value_); }
  void end() const {
    release();
    check(cu().cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }

 private:
  decltype(&cuStreamWaitValue32_v2) wait_ = DRIVER(cuStreamWaitValue32_v2, "cuStreamWaitValue32");
  Page& page_;
  CUfunction kernel_;
  CUstream stream_;
  uint32_t value_ = 0;
};

// A thread that launches into the held stream until this object is destroyed.
class Filler {
 public:
  Filler(const Held& held, CUcontext context)
      : thread_([this, &held, context] {
          make_current(context);
          for (; !over_ && launches_ < kMostLaunches; ++launches_) held.add();
        }) {}
  ~Filler() { thread_.join(); }
  Filler(const Filler&) = delete;
  Filler& operator=(const Filler&) = delete;

  // Waits until the thread has made no progress for a while; returns the number of its launches.
  uint64_t wait_until_kept() const {
    uint64_t seen = 0;
    for (int unmoved = 0; unmoved < kUnmovedLooks;) {
      std::this_thread::sleep_for(kLook);
      unmoved = launches_ == seen && seen > 0 ? unmoved + 1 : 0;
      seen = launches_;
    }
    return seen;
  }
  void stop() { over_ = true; }

 private:
  std::atomic<bool> over_{false};
  std::atomic<uint64_t> launches_{0};
  std::thread thread_;  // last: it uses the other members
};

// Makes the call on a thread of its own; returns its result, or "waits" if it does not return.
std::string outcome(const Held& held, CUcontext context, const std::function<CUresult()>& call) {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_back = false;
  CUresult result = CUDA_SUCCESS;
  std::thread thread([&] {
    make_current(context);
    const CUresult found = call();
    const std::lock_guard lock(mutex);
    result = found;
    is_back = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  const bool came = changed.wait_for(lock, kPatience, [&] { return is_back; });
  if (!came) held.release();
  lock.unlock();
  thread.join();
  return came ? name_of(result) : "waits";
}

struct Call {
  const char* name;
  std::function<CUresult()> act;
};

// The calls that the shim makes in addition to the program's own, and possible alternatives.
std::vector<Call> calls(CUfunction kernel) {
  static const CUstream other = new_stream();
  static const CUevent done = new_event(CU_EVENT_DISABLE_TIMING);
  static const CUevent fresh = new_event(CU_EVENT_DISABLE_TIMING);
  check(cu().cuEventRecord(done, other), "cuEventRecord");
  check(cu().cuStreamSynchronize(other), "cuStreamSynchronize");
  static void* const page =
      mmap(nullptr, Page::kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  static CUdeviceptr memory = 0;
  static Chunks chunks(4 << 20, 2 << 20, true);
  static Split split = split_sms(1);
  static const Page& written = shared_page();
  const auto register_page = [] {
    return DRIVER(cuMemHostRegister_v2, "cuMemHostRegister")(page, Page::kBytes,
                                                             CU_MEMHOSTREGISTER_PORTABLE);
  };
  const auto unregister_page = [] {
    return DRIVER(cuMemHostUnregister, "cuMemHostUnregister")(page);
  };
  const auto allocate = [] { return DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&memory, 1 << 20); };
  const auto make_green = [] {
    if (split.groups.empty()) return split.result;
    return Green(split.groups.data(), 1).result;
  };
  return {
      {"event_query", [] { return cu().cuEventQuery(done); }},
      {"stream_query", [] { return DRIVER(cuStreamQuery, "cuStreamQuery")(other); }},
      {"write_other_stream", [] { return write_value(other, written.device_line(1), 1); }},
      {"record_other_stream", [] { return cu().cuEventRecord(fresh, other); }},
      {"launch_other_stream",
       [kernel] {
         return cu().cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, other, nullptr, nullptr);
       }},
      {"memory_info",
       [] {
         size_t free = 0, total = 0;
         return DRIVER(cuMemGetInfo_v2, "cuMemGetInfo")(&free, &total);
       }},
      {"new_stream",
       [] {
         CUstream made = nullptr;
         return cu().cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
       }},
      {"register", register_page},
      {"unregister", unregister_page},  // the page that the entry above registered
      {"map", [] { return chunks.map(0), CUDA_SUCCESS; }},
      {"unmap", [] { return chunks.unmap(0), CUDA_SUCCESS; }},
      {"green_context", make_green},
      {"allocate", allocate},
      {"free", [] { return DRIVER(cuMemFree_v2, "cuMemFree")(memory); }},
  };
}

}  // namespace

int main(int, char** arguments) {
  const CUfunction kernel = function_of(make_module(arguments[1]), "empty");
  const CUcontext context = current();
  const std::vector<Call> all = calls(kernel);
  Held held(kernel);
  Json while_held, while_full;
  uint64_t queue = 0;
  for (const Call& call : all) {
    held.hold();
    while_held.add(call.name, outcome(held, context, call.act));
    held.end();
  }
  for (const Call& call : all) {
    held.hold();
    Filler filler(held, context);
    queue = filler.wait_until_kept();
    filler.stop();
    while_full.add(call.name, outcome(held, context, call.act));
    held.end();
  }
  Json().add("queue", queue).add("held", while_held).add("full", while_full).print();
  return 0;
}
