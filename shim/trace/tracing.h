// Traces of calls: every intercepted call with its arguments, result and time, for `tandem trace`.
// On when TANDEM_TRACE_CALLS names the memory of a tracer; otherwise none of this is ever reached.
//
//   TANDEM_TRACE_CALLS   /proc/PID/fd/N:KEY   set by `tandem trace calls`, for it and its children
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "driver.h"
#include "slots.h"
#include "trace_writer.h"

namespace tandem::shim::tracing {

// The index of a call among those interposed, which is also its number in a trace.
enum CallIndex : uint16_t {
#define CALL(name) kIndex_##name,
#include "shim_calls.inc"
#undef CALL
  kIndex_tandem_mark_v1,  // not a driver call; generate_entries.py also puts it at the end
};

// Reads the environment; true when this process is traced from now on. Called once, by
// resolve_driver.
bool start();
[[nodiscard]] bool is_on();
void become_child();

// Collects what is recorded of a call's arguments. The generated entries chain one member call per
// parameter, by its type; generate_entries.py chooses it and tells the readers of traces.
class Arguments {
 public:
  Arguments(CUresult result, bool per_thread) : result_(result), per_thread_(per_thread) {}

  template <class T>
  Arguments& value(T argument) {
    if constexpr (std::is_same_v<T, CUstream>) set_stream(argument);
    if constexpr (std::is_pointer_v<T>) {
      return add(reinterpret_cast<uint64_t>(argument));
    } else if constexpr (std::is_class_v<T>) {  // a small structure, such as CUmemLocation
      uint64_t word = 0;
      std::memcpy(&word, &argument, sizeof(T) < sizeof(word) ? sizeof(T) : sizeof(word));
      return add(word);
    } else {
      return add(static_cast<uint64_t>(argument));
    }
  }
  // A pointer to a result: the pointer itself, and what the driver wrote there, if it did.
  template <class T>
  Arguments& out(T* argument) {
    add(reinterpret_cast<uint64_t>(argument));
    if (!argument || result_ != CUDA_SUCCESS) return add(0);
    if constexpr (std::is_pointer_v<T>) return add(reinterpret_cast<uint64_t>(*argument));
    else return add(static_cast<uint64_t>(*argument));
  }
  Arguments& text(const char* argument);
  Arguments& copy2d(const CUDA_MEMCPY2D* argument);
  Arguments& copy3d(const CUDA_MEMCPY3D* argument);
  Arguments& config(const CUlaunchConfig* argument);
  // The address and, after all other words, the values of the kernel's parameters.
  Arguments& kernel(CUfunction function, void** argument);

  [[nodiscard]] uint64_t stream() const { return stream_; }
  [[nodiscard]] bool failed() const { return result_ != CUDA_SUCCESS; }

 private:
  friend class Span;

  Arguments& add(uint64_t word) {
    if (count_ < trace::kMaxWords) words_[count_++] = word;
    return *this;
  }
  void set_stream(CUstream stream) { stream_ = normalise(stream, per_thread_); }

  CUresult result_;
  bool per_thread_;
  bool is_cut_ = false;
  uint32_t count_ = 0;
  uint32_t text_bytes_ = 0;
  const char* text_ = nullptr;
  CUfunction function_ = nullptr;
  void** parameters_ = nullptr;
  uint64_t stream_ = trace::kNoTraceStream;
  uint64_t words_[trace::kMaxWords];
};

// One call, from its beginning to its end.
class Span {
 public:
  explicit Span(CallIndex call);
  void end(Arguments& arguments);
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  void add_kernel_parameters(Arguments& arguments);

  CallIndex call_;
  uint8_t flags_ = 0;
  uint64_t start_ns_ = 0;
};

// Records a mark of the program as if it were a call. Not before the clock in use is known.
void write_mark(int kind, uint64_t id, uint64_t value);

// The current call of this thread, for the device times: set by Span.
struct CallId {
  uint32_t thread;
  uint64_t number;
};
CallId current_call();
void mark_timed();
bool wants_device_times();
// Writes a kDeviceTime record of an earlier call into this thread's ring.
void write_device_time(const CallId& call, uint64_t duration_ns);

}  // namespace tandem::shim::tracing
