#include "tracing.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "capture.h"
#include "clock.h"
#include "fork.h"
#include "log.h"
#include "old_glibc.h"
#include "tracing_device.h"
#include "tracing_functions.h"
#include "tracing_times.h"

namespace tandem::shim::tracing {
namespace {

using trace::TraceClock;

// What a traced thread keeps; mapped at its first call.
struct Thread {
  trace::TraceWriter writer;
  FunctionNotes functions;
  uint64_t number = 0;
  uint32_t tid = 0;
  TraceClock told_clock = TraceClock::kUnknown;
  uint64_t told_context = 0;  // the last one whose device was described
  ToldDevices told_devices;
  bool is_timed = false;
  bool is_introduced = false;
};

constexpr uint64_t kLookAgainEvery = 64;

trace::TraceMap g_map;
std::atomic<TraceClock> g_clock_kind{TraceClock::kUnknown};
std::atomic<uint32_t> g_pid{0};
pthread_key_t g_exit_key;
pthread_once_t g_exit_key_once = PTHREAD_ONCE_INIT;
bool g_has_exit_key = false;  // false: the process has used up its keys; written by the once
__thread Thread* g_traced __attribute__((tls_model("initial-exec"))) = nullptr;

void thread_ends(void* place) {
  auto* thread = static_cast<Thread*>(place);
  thread->writer.give_back();
  munmap(thread, sizeof(Thread));
  g_traced = nullptr;
}
void make_exit_key() {
  g_has_exit_key = old_glibc::pthread_key_create(&g_exit_key, thread_ends) == 0;
}

Thread* this_thread() {
  if (g_traced) return g_traced;
  void* place =
      mmap(nullptr, sizeof(Thread), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return nullptr;
  auto* thread = new (place) Thread;
  thread->tid = static_cast<uint32_t>(syscall(SYS_gettid));
  if (g_pid.load(std::memory_order_relaxed) == 0)
    g_pid.store(static_cast<uint32_t>(getpid()), std::memory_order_relaxed);
  if (old_glibc::pthread_once(&g_exit_key_once, make_exit_key) == 0 && g_has_exit_key)
    old_glibc::pthread_setspecific(g_exit_key, thread);
  g_traced = thread;
  thread->writer.claim(g_map, g_pid.load(std::memory_order_relaxed), thread->tid);
  return thread;
}

bool has_device_clock() { return g_driver.softgpu_now_ns && g_driver.softgpu_clock_is_virtual; }

// Call only once the driver is initialised: the query connects to the device.
void learn_clock() {
  TraceClock kind = TraceClock::kMonotonic;
  if (has_device_clock() && g_driver.softgpu_clock_is_virtual() == 1) kind = TraceClock::kVirtual;
  g_clock_kind.store(kind, std::memory_order_relaxed);
}

uint64_t now_ns() {
  return g_clock_kind.load(std::memory_order_relaxed) == TraceClock::kVirtual
             ? g_driver.softgpu_now_ns()
             : monotonic_ns();
}

shm::Record record_of(shm::RecordKind kind, const Thread& thread) {
  shm::Record record{};
  record.kind = static_cast<uint8_t>(kind);
  record.thread = thread.tid;
  return record;
}

// Reports whose calls these are, on which clock and, once a context is current, on what device.
void introduce(Thread& thread, TraceClock clock, uint64_t context) {
  uint64_t device[kDeviceWords];
  uint32_t words = 0;
  if (context && context != thread.told_context) words = thread.told_devices.describe(device);
  if (context) thread.told_context = context;
  if (thread.told_clock == clock && thread.is_introduced && words == 0) return;
  thread.told_clock = clock;
  shm::Record record = record_of(shm::RecordKind::kProcess, thread);
  record.ticks = monotonic_ns();
  record.stream = static_cast<uint64_t>(getppid());
  record.object = g_pid.load(std::memory_order_relaxed);
  record.bytes = static_cast<uint64_t>(clock);
  record.grid_blocks = words;
  record.block_threads = static_cast<uint32_t>(std::strlen(program_invocation_short_name));
  thread.is_introduced = thread.writer.put(record, device, program_invocation_short_name);
}

uint64_t current_context() {
  CUcontext context = nullptr;
  if (g_driver.cuCtxGetCurrent) g_driver.cuCtxGetCurrent(&context);
  return reinterpret_cast<uint64_t>(context);
}

void start_once() {
  const char* place = secure_getenv("TANDEM_TRACE_CALLS");
  if (!place || !*place) return;
  if (!g_map.open(place)) {
    say_once("TANDEM_TRACE_CALLS", place, "is not a writable trace; not tracing");
    return;
  }
  if (!has_device_clock()) g_clock_kind.store(TraceClock::kMonotonic, std::memory_order_relaxed);
  watch_forks();
}

// What a reader has to know about the stream on which a call was made.
struct StreamFacts {
  uint8_t flags = 0;
  uint64_t context = 0;  // 0 = the current one
};

bool destroys_stream(CallIndex call) {
  return call == kIndex_cuStreamDestroy || call == kIndex_cuStreamDestroy_v2;
}

StreamFacts facts_of_stream(CallIndex call, const Arguments& arguments) {
  const uint64_t handle = arguments.stream();
  if (handle == trace::kNoTraceStream || arguments.failed() || destroys_stream(call)) return {};
  const CUstream stream = as_stream(handle);
  if (any_capture() && is_capturing(stream)) return {trace::kCallCaptured, 0};
  if (is_default_stream(handle)) return {};
  StreamFacts facts;
  unsigned flags = 0;
  if (g_driver.cuStreamGetFlags && g_driver.cuStreamGetFlags(stream, &flags) == CUDA_SUCCESS &&
      flags & CU_STREAM_NON_BLOCKING) {
    facts.flags = trace::kCallNonBlocking;
  }
  // A stream works in its own context, whichever is current.
  CUcontext context = nullptr;
  if (g_driver.cuStreamGetCtx && g_driver.cuStreamGetCtx(stream, &context) == CUDA_SUCCESS)
    facts.context = reinterpret_cast<uint64_t>(context);
  return facts;
}

}  // namespace

bool start() {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  old_glibc::pthread_once(&once, start_once);
  return g_map.is_open();
}

bool is_on() { return g_map.is_open(); }

void become_child() {
  if (!g_map.is_open()) return;
  if (g_traced) {
    g_traced->writer.forget();
    munmap(g_traced, sizeof(Thread));
    if (g_has_exit_key) old_glibc::pthread_setspecific(g_exit_key, nullptr);
    g_traced = nullptr;
  }
  g_pid.store(0, std::memory_order_relaxed);
  if (has_device_clock()) g_clock_kind.store(TraceClock::kUnknown, std::memory_order_relaxed);
  forget_device_times();
}

bool wants_device_times() { return g_map.is_open() && g_map.device_times(); }

CallId current_call() { return {g_traced ? g_traced->tid : 0, g_traced ? g_traced->number : 0}; }

void mark_timed() {
  if (g_traced) g_traced->is_timed = true;
}

void write_device_time(const CallId& call, uint64_t duration_ns) {
  if (!g_traced || !g_traced->writer.has_ring()) return;
  shm::Record record = record_of(shm::RecordKind::kDeviceTime, *g_traced);
  record.thread = call.thread;
  record.object = call.number;
  record.duration_ns = duration_ns;
  g_traced->writer.put(record, nullptr, nullptr);
}

void write_mark(int kind, uint64_t id, uint64_t value) {
  if (g_clock_kind.load(std::memory_order_relaxed) == TraceClock::kUnknown) return;
  Span span(kIndex_tandem_mark_v1);
  Arguments arguments(CUDA_SUCCESS, false);
  span.end(arguments.value(kind).value(id).value(value));
}

Span::Span(CallIndex call) : call_(call) {
  Thread* thread = this_thread();
  if (!thread) return;
  thread->number = g_map.header().calls.fetch_add(1, std::memory_order_relaxed) + 1;
  thread->is_timed = false;
  // A thread that found no ring when it began looks again from time to time.
  if (!thread->writer.has_ring() && thread->number % kLookAgainEvery == 0)
    thread->writer.claim(g_map, g_pid.load(std::memory_order_relaxed), thread->tid, false);
  if (g_clock_kind.load(std::memory_order_relaxed) == TraceClock::kUnknown)
    flags_ |= trace::kCallHostTime;
  start_ns_ = now_ns();
  if (thread->writer.has_ring()) thread->writer.enter(call, thread->number, start_ns_);
}

void Span::end(Arguments& arguments) {
  // The clock of the start, even if the call has made the device's clock known.
  const uint64_t end_ns = flags_ & trace::kCallHostTime ? monotonic_ns() : now_ns();
  Thread* thread = g_traced;
  if (!thread || !thread->writer.has_ring()) {
    g_map.header().lost.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  thread->writer.leave();
  const bool is_lookup = call_ == kIndex_cuGetProcAddress || call_ == kIndex_cuGetProcAddress_v2;
  if (g_clock_kind.load(std::memory_order_relaxed) == TraceClock::kUnknown &&
      arguments.result_ == CUDA_SUCCESS && !is_lookup) {
    learn_clock();
  }
  const uint64_t context = is_lookup ? 0 : current_context();
  introduce(*thread, g_clock_kind.load(std::memory_order_relaxed), context);
  add_kernel_parameters(arguments);
  if (thread->is_timed) flags_ |= trace::kCallTimed;
  if (arguments.is_cut_) flags_ |= trace::kCallCut;
  const StreamFacts facts = facts_of_stream(call_, arguments);
  flags_ |= facts.flags;
  shm::Record record = record_of(shm::RecordKind::kCall, *thread);
  record.ticks = start_ns_;
  record.flags = flags_;
  record.slot = call_;
  record.stream = arguments.stream_;
  record.object = thread->number;
  record.bytes = facts.context ? facts.context : context;
  record.grid_blocks = arguments.count_;
  record.block_threads = arguments.text_bytes_;
  record.duration_ns = end_ns > start_ns_ ? end_ns - start_ns_ : 0;
  record.value = static_cast<uint64_t>(arguments.result_);
  thread->writer.put(record, arguments.words_, arguments.text_);
}

void Span::add_kernel_parameters(Arguments& arguments) {
  if (!arguments.function_ || arguments.result_ != CUDA_SUCCESS) return;
  const FunctionNote& note = g_traced->functions.look_up(
      arguments.function_,
      [](const FunctionNote&, const shm::Record& head, const uint64_t* words, const char* name) {
        shm::Record record = head;
        record.thread = g_traced->tid;
        return g_traced->writer.put(record, words, name);
      });
  arguments.is_cut_ |= note.has_more;
  if (!arguments.parameters_) return;
  const ParameterWords found =
      collect_parameters(note, arguments.parameters_, nullptr, arguments.words_ + arguments.count_,
                         trace::kMaxWords - arguments.count_);
  arguments.count_ += found.count;
  arguments.is_cut_ |= found.is_cut;
}

Arguments& Arguments::text(const char* argument) {
  constexpr size_t kLongest = 256;
  if (argument) {
    text_ = argument;
    text_bytes_ = static_cast<uint32_t>(strnlen(argument, kLongest));
  }
  return add(reinterpret_cast<uint64_t>(argument));
}

Arguments& Arguments::copy2d(const CUDA_MEMCPY2D* argument) {
  const CUDA_MEMCPY2D copy = argument ? *argument : CUDA_MEMCPY2D{};
  value(argument);
  value(copy.srcMemoryType).value(copy.srcHost).value(copy.srcDevice).value(copy.srcArray);
  value(copy.srcPitch).value(copy.srcXInBytes).value(copy.srcY);
  value(copy.dstMemoryType).value(copy.dstHost).value(copy.dstDevice).value(copy.dstArray);
  value(copy.dstPitch).value(copy.dstXInBytes).value(copy.dstY);
  return value(copy.WidthInBytes).value(copy.Height);
}

Arguments& Arguments::copy3d(const CUDA_MEMCPY3D* argument) {
  const CUDA_MEMCPY3D copy = argument ? *argument : CUDA_MEMCPY3D{};
  value(argument);
  value(copy.srcMemoryType).value(copy.srcHost).value(copy.srcDevice).value(copy.srcArray);
  value(copy.srcPitch).value(copy.srcHeight);
  value(copy.dstMemoryType).value(copy.dstHost).value(copy.dstDevice).value(copy.dstArray);
  value(copy.dstPitch).value(copy.dstHeight);
  return value(copy.WidthInBytes).value(copy.Height).value(copy.Depth);
}

Arguments& Arguments::config(const CUlaunchConfig* argument) {
  const CUlaunchConfig config = argument ? *argument : CUlaunchConfig{};
  value(argument);
  value(config.gridDimX).value(config.gridDimY).value(config.gridDimZ);
  value(config.blockDimX).value(config.blockDimY).value(config.blockDimZ);
  value(config.sharedMemBytes).value(config.numAttrs);
  add(reinterpret_cast<uint64_t>(config.hStream));
  if (argument) set_stream(config.hStream);
  return *this;
}

Arguments& Arguments::kernel(CUfunction function, void** argument) {
  function_ = function;
  parameters_ = argument;
  return add(reinterpret_cast<uint64_t>(argument));
}

}  // namespace tandem::shim::tracing
