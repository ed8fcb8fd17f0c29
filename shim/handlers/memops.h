// Stream memory operations and host functions: recorded, never gated.
//
// None of them computes on the GPU, and work in flight may wait for any of them: for a value to be
// written, or for a function to signal, in this process or, through shared memory, in another
// group. A held group drains only if they pass; a group that never drains is opened again (docs:
// holds). Nor can they overtake anything: each stays behind what its stream and its thread have in
// front of it. A wait is never held back by itself either, since what follows it in its stream is
// gated anyway.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "callback.h"
#include "driver.h"
#include "observe.h"
#include "slots.h"
#include "swappable.h"
#include "use.h"

namespace tandem::shim::handlers {

template <class Call>
CUresult host_function(CUstream stream, CUstreamCallback function, void* user, unsigned flags) {
  const auto ordered_as = [&](auto real) {
    return ordered(shm::RecordKind::kHostFunc, normalise(stream, Call::kPerThread),
                   reinterpret_cast<uint64_t>(function), real);
  };
  auto* kept =
      partition::is_on() && function ? partition::keep_callback(function, user, stream) : nullptr;
  if (!kept) return ordered_as([&] { return Call::real(stream, function, user, flags); });
  const CUresult result =
      ordered_as([&] { return Call::real(stream, &partition::Callback::call, kept, flags); });
  if (result != CUDA_SUCCESS) std::free(kept);
  return result;
}
template <class Call, class Function, class... Rest>
CUresult host_function(CUstream stream, Function function, Rest... rest) {
  return ordered(shm::RecordKind::kHostFunc, normalise(stream, Call::kPerThread),
                 reinterpret_cast<uint64_t>(function),
                 [&] { return Call::real(stream, function, rest...); });
}

// The second argument is the address or, for a batch, the number of operations.
template <class Call, class Where, class... Rest>
CUresult memory_operation(CUstream stream, Where where, Rest... rest) {
  // Not gated, since others may be waiting for exactly this; but no page may be missing under it.
  const bool is_batch = !std::is_same_v<Where, CUdeviceptr>;
  const swap::Use use(is_batch || swap::range_at(where).bytes != 0);
  return ordered(shm::RecordKind::kMemOp, normalise(stream, Call::kPerThread), uint64_t{where},
                 [&] { return Call::real(stream, where, rest...); });
}

}  // namespace tandem::shim::handlers
