// Hands a call to the driver, with each stream that it names replaced by the driver stream behind
// it.
#pragma once

#include <cuda.h>

#include <type_traits>

#include "always_inline.h"
#include "inside.h"
#include "streams.h"

namespace tandem::shim::partition {

constexpr bool says(const char* name, const char* part) {
  for (; *name; ++name) {
    const char *a = name, *b = part;
    while (*b && *a == *b) ++a, ++b;
    if (!*b) return true;
  }
  return false;
}

constexpr How how(const char* name) {
  // Concerns the handle itself; the handler takes care of the streams behind it.
  if (says(name, "StreamDestroy") || says(name, "SetAttribute") || says(name, "CopyAttributes"))
    return How::kPlain;
  if (says(name, "Synchronize") || says(name, "Query") || says(name, "IsCapturing") ||
      says(name, "GetCaptureInfo")) {
    return How::kLook;
  }
  return says(name, "EndCapture") || says(name, "UpdateCapture") ? How::kHold : How::kFollow;
}

// An argument in the form in which the driver gets it.
template <class T>
struct Handed {
  Handed(T argument, const Stream&) : value(argument) {}
  T value;
};
template <>
struct Handed<CUstream> {
  Handed(CUstream, const Stream& stream) : value(stream.real()) {}
  CUstream value;
};
template <>
struct Handed<const CUlaunchConfig*> {
  Handed(const CUlaunchConfig* config, const Stream& stream) : value(config) {
    if (!config || stream.real() == stream.handle()) return;
    copy = *config;
    copy.hStream = stream.real();
    value = &copy;
  }
  CUlaunchConfig copy;
  const CUlaunchConfig* value;
};
template <>
struct Handed<CUDA_GRAPH_INSTANTIATE_PARAMS*> {
  Handed(CUDA_GRAPH_INSTANTIATE_PARAMS* parameters, const Stream& stream)
      : value(parameters), own(parameters) {
    if (!parameters || stream.real() == stream.handle()) return;
    copy = *parameters;
    copy.hUploadStream = stream.real();
    value = &copy;
  }
  ~Handed() {  // the driver reports in the copy what was wrong
    if (value != &copy) return;
    own->hErrNode_out = copy.hErrNode_out;
    own->result_out = copy.result_out;
  }
  CUDA_GRAPH_INSTANTIATE_PARAMS copy;
  CUDA_GRAPH_INSTANTIATE_PARAMS* value;
  CUDA_GRAPH_INSTANTIATE_PARAMS* own;
};

template <class T>
constexpr bool is_stream_in =
    std::is_same_v<T, CUstream> || std::is_same_v<T, const CUlaunchConfig*> ||
    std::is_same_v<T, CUDA_GRAPH_INSTANTIATE_PARAMS*>;
template <class... A>
constexpr bool name_a_stream = (is_stream_in<A> || ...);

inline CUstream named_in(CUstream stream) { return stream; }
inline CUstream named_in(const CUlaunchConfig* config) {
  return config ? config->hStream : nullptr;
}
inline CUstream named_in(CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  return parameters && (parameters->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
             ? parameters->hUploadStream
             : nullptr;
}

template <class First, class... Rest>
CUstream stream_named(First first, Rest... rest) {
  if constexpr (is_stream_in<First>) return named_in(first);
  else return stream_named(rest...);
}

template <How kHow, bool kPerThread, class Function, class... A>
CUresult hand_over(Function function, A... arguments) {
  if constexpr (kHow == How::kPlain) return function(arguments...);  // it may name several
  const Stream stream(stream_named(arguments...), kHow, kPerThread);
  return function(Handed<A>(arguments, stream).value...);
}

// A call that adds to a stream announces that while it runs.
template <How kHow, bool kPerThread, class Function, class... A>
ALWAYS_INLINE CUresult pass_on(Function function, A... arguments) {
  if constexpr (kHow == How::kFollow || kHow == How::kHold) {
    const Inside inside(stream_named(arguments...), kPerThread);
    if (is_on()) return hand_over<kHow, kPerThread>(function, arguments...);
    return function(arguments...);
  } else {
    return is_on() ? hand_over<kHow, kPerThread>(function, arguments...) : function(arguments...);
  }
}

}  // namespace tandem::shim::partition
