// Helpers that several handlers need.
#pragma once

#include <cuda.h>

#include <tuple>

#include "driver.h"

namespace tandem::shim::handlers {

template <class Call, class... A>
CUresult forward(A... arguments) {
  return Call::real(arguments...);
}

// The stream is the last argument.
template <class... A>
CUstream stream_in(A... arguments) {
  return std::get<sizeof...(A) - 1>(std::tuple<A...>(arguments...));
}

}  // namespace tandem::shim::handlers
