// What differs in a call's real function, and after the call, while calls are traced.
#pragma once

#include <cuda.h>

#include "driver.h"
#include "handlers.h"
#include "tracing.h"
#include "tracing_times.h"

namespace tandem::shim::tracing {

constexpr bool is_timed(const char* name) {
  return contains(name, "cuLaunchKernel") || contains(name, "cuLaunchCooperativeKernel") ||
         contains(name, "cuGraphLaunch") || contains(name, "cuMemcpy") ||
         contains(name, "cuMemset");
}

// Finds the stream of a launch, or of a copy or memset that names one. False: it must not be timed,
// because timing would change what it does, or because the call may return before the work has
// ended in a stream of its own.
template <class First, class... Rest>
bool stream_of(CUstream* stream, First first, Rest... rest) {
  if constexpr (std::is_same_v<First, CUstream>) {
    return *stream = first, true;
  } else if constexpr (std::is_same_v<First, const CUlaunchConfig*>) {
    if (!first || handlers::is_programmatic(*first)) return false;
    return *stream = first->hStream, true;
  } else if constexpr (sizeof...(Rest) > 0) {
    return stream_of(stream, rest...);
  } else {
    return false;
  }
}

template <class Call>
struct Traced : Call {
  template <class... A>
  static CUresult real(A... arguments) {
    if constexpr (is_timed(Call::kName)) {
      CUstream stream = nullptr;
      if (wants_device_times() && stream_of(&stream, arguments...)) {
        // The default stream of a per-thread flavour is not the one that the events would use.
        if (!stream && Call::kPerThread) stream = CU_STREAM_PER_THREAD;
        EventPair* pair = begin_device_time(stream);
        const CUresult result = Call::real(arguments...);
        if (pair) end_device_time(pair, stream, result == CUDA_SUCCESS);
        return result;
      }
    } else if constexpr (contains(Call::kName, "cuCtxDestroy")) {
      if (wants_device_times()) drop_device_times(arguments..., -1);
    } else if constexpr (contains(Call::kName, "cuDevicePrimaryCtxRelease") ||
                         contains(Call::kName, "cuDevicePrimaryCtxReset")) {
      if (wants_device_times()) drop_device_times(nullptr, arguments...);
    }
    return Call::real(arguments...);
  }
};

// How many unfinished launches to look at if nothing says that they ended.
constexpr uint32_t kPatience = 8;

// Calls that name no stream, and calls that wait, are the points where ended launches are
// collected.
template <class Call>
void after(const Arguments& arguments) {
  if (!wants_device_times()) return;
  if constexpr (contains(Call::kName, "Synchronize")) {
    collect_device_times(~uint32_t{0});
  } else if (arguments.stream() == trace::kNoTraceStream || contains(Call::kName, "Query")) {
    collect_device_times(kPatience);
  } else {
    collect_device_times(1);
  }
}

}  // namespace tandem::shim::tracing
