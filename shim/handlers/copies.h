// Copies and memsets of every shape.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "driver.h"
#include "handlers/common.h"
#include "observe.h"
#include "slots.h"
#include "submit.h"

namespace tandem::shim::handlers {

constexpr uint64_t direction_of(const char* name) {
  if (contains(name, "HtoD") || contains(name, "HtoA")) return 1;
  if (contains(name, "DtoH") || contains(name, "AtoH")) return 2;
  if (contains(name, "DtoD") || contains(name, "DtoA") || contains(name, "AtoD") ||
      contains(name, "AtoA")) {
    return 3;
  }
  return 0;
}

inline uint64_t bytes_of(const CUDA_MEMCPY2D* copy) {
  return copy ? copy->WidthInBytes * copy->Height : 0;
}
inline uint64_t bytes_of(const CUDA_MEMCPY3D* copy) {
  return copy ? copy->WidthInBytes * copy->Height * copy->Depth : 0;
}
// Linear copies: of all their arguments the last size_t is the byte count.
template <class... A>
uint64_t bytes_of(A... arguments) {
  uint64_t bytes = 0;
  const auto look = [&bytes](auto argument) {
    if constexpr (std::is_same_v<decltype(argument), size_t>) bytes = argument;
  };
  (look(arguments), ...);
  return bytes;
}

template <class A>
uint64_t object_of(A argument) {
  if constexpr (std::is_pointer_v<A>) return reinterpret_cast<uint64_t>(argument);
  else return argument;
}

template <class Call, class First, class... Rest>
Submission describe_copy(CUstream stream, First first, Rest... rest) {
  Submission submission;
  submission.kind = shm::RecordKind::kCopy;
  submission.stream = normalise(stream, Call::kPerThread);
  submission.object = object_of(first);
  submission.direction = direction_of(Call::kName);
  submission.bytes = bytes_of(first, rest...);
  submission.est_ns = copy_estimate_ns(submission.bytes, submission.direction);
  return submission;
}

template <class Call, class... A>
CUresult copy_async(A... arguments) {
  const Submission submission = describe_copy<Call>(stream_in(arguments...), arguments...);
  return submit(submission, [&] { return Call::real(arguments...); });
}

template <class Call, class... A>
CUresult copy_now(A... arguments) {
  Submission submission = describe_copy<Call>(nullptr, arguments...);
  submission.blocks_caller = true;
  return submit(submission, [&] { return Call::real(arguments...); });
}

constexpr uint64_t element_bytes(const char* name) {
  return contains(name, "D32") ? 4 : contains(name, "D16") ? 2 : 1;
}

template <class Call>
Submission describe_set(CUstream stream, CUdeviceptr address, uint64_t elements) {
  Submission submission;
  submission.kind = shm::RecordKind::kMemset;
  submission.stream = normalise(stream, Call::kPerThread);
  submission.object = address;
  submission.bytes = elements * element_bytes(Call::kName);
  submission.direction = 3;
  submission.est_ns = copy_estimate_ns(submission.bytes, 3);
  return submission;
}

// A memset without a stream does not block the caller: it is work of the default stream.
template <class Call, class Value>
CUresult set_now(CUdeviceptr address, Value value, size_t count) {
  return submit(describe_set<Call>(nullptr, address, count),
                [&] { return Call::real(address, value, count); });
}
template <class Call, class Value>
CUresult set_now(CUdeviceptr address, size_t pitch, Value value, size_t width, size_t height) {
  return submit(describe_set<Call>(nullptr, address, width * height),
                [&] { return Call::real(address, pitch, value, width, height); });
}
template <class Call, class Value>
CUresult set_async(CUdeviceptr address, Value value, size_t count, CUstream stream) {
  return submit(describe_set<Call>(stream, address, count),
                [&] { return Call::real(address, value, count, stream); });
}
template <class Call, class Value>
CUresult set_async(CUdeviceptr address, size_t pitch, Value value, size_t width, size_t height,
                   CUstream stream) {
  return submit(describe_set<Call>(stream, address, width * height),
                [&] { return Call::real(address, pitch, value, width, height, stream); });
}

}  // namespace tandem::shim::handlers
