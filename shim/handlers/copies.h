// Copies of every shape that describe by themselves what they move; batches are in batches.h.
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

template <class A>
uint64_t as_number(A argument) {
  if constexpr (std::is_pointer_v<A>) return reinterpret_cast<uint64_t>(argument);
  else return argument;
}

constexpr Direction direction_named(const char* name) {
  if (contains(name, "HtoD") || contains(name, "HtoA")) return Direction::kToDevice;
  if (contains(name, "DtoH") || contains(name, "AtoH")) return Direction::kFromDevice;
  if (contains(name, "DtoD") || contains(name, "DtoA") || contains(name, "AtoD") ||
      contains(name, "AtoA")) {
    return Direction::kWithin;
  }
  return Direction::kUnknown;
}

// Derives the direction from the memory types of the two sides. Only the driver knows what unified
// addresses are.
inline Direction direction_of(CUmemorytype from, CUmemorytype to) {
  if (from == CU_MEMORYTYPE_UNIFIED || to == CU_MEMORYTYPE_UNIFIED) return Direction::kUnknown;
  if (from == CU_MEMORYTYPE_HOST)
    return to == CU_MEMORYTYPE_HOST ? Direction::kUnknown : Direction::kToDevice;
  return to == CU_MEMORYTYPE_HOST ? Direction::kFromDevice : Direction::kWithin;
}

template <class T>
constexpr bool is_volume =
    std::is_same_v<T, const CUDA_MEMCPY3D_v1*> || std::is_same_v<T, const CUDA_MEMCPY3D*> ||
    std::is_same_v<T, const CUDA_MEMCPY3D_PEER*>;
template <class T>
constexpr bool is_box = is_volume<T> || std::is_same_v<T, const CUDA_MEMCPY2D_v1*> ||
                        std::is_same_v<T, const CUDA_MEMCPY2D*>;

template <class Copy>
uint64_t destination_of(const Copy& copy) {
  if (copy.dstMemoryType == CU_MEMORYTYPE_HOST) return as_number(copy.dstHost);
  if (copy.dstMemoryType == CU_MEMORYTYPE_ARRAY) return as_number(copy.dstArray);
  return copy.dstDevice;
}

template <class Copy>
uint64_t source_in(const Copy& copy) {
  if (copy.srcMemoryType == CU_MEMORYTYPE_HOST) return as_number(copy.srcHost);
  if (copy.srcMemoryType == CU_MEMORYTYPE_ARRAY) return as_number(copy.srcArray);
  return copy.srcDevice;
}

template <class Box>
void describe_box(Box copy, Submission* submission) {
  if (!copy) return;
  submission->object = destination_of(*copy);
  submission->bytes = uint64_t{copy->WidthInBytes} * copy->Height;
  if constexpr (is_volume<Box>) submission->bytes *= copy->Depth;
  submission->direction = direction_of(copy->srcMemoryType, copy->dstMemoryType);
  submission->source = source_in(*copy);
  submission->record_flags = shm::kRecordScattered;  // by pitches and offsets
  if constexpr (std::is_same_v<Box, const CUDA_MEMCPY3D_PEER*>) {
    if (copy->srcContext != copy->dstContext) submission->direction = Direction::kBetween;
  }
}

// Linear copies: their last size_t argument (unsigned in the first API version) is the byte count.
template <class... A>
uint64_t bytes_of(A... arguments) {
  uint64_t bytes = 0;
  const auto look = [&bytes](auto argument) {
    using T = decltype(argument);
    if constexpr (std::is_same_v<T, size_t> || std::is_same_v<T, unsigned>) bytes = argument;
  };
  (look(arguments), ...);
  return bytes;
}

template <class Call, class To, class From, class... Rest>
void describe_line(Submission* submission, To to, From from, Rest... rest) {
  submission->object = as_number(to);
  submission->bytes = bytes_of(rest...);
  submission->direction = direction_named(Call::kName);
  if constexpr (contains(Call::kName, "Ato") || contains(Call::kName, "toA"))
    submission->record_flags = shm::kRecordScattered;  // an array has no addresses
  else submission->source = as_number(from);
}

template <class... Rest>
void describe_peers(Submission* submission, CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                    CUcontext from_context, size_t bytes, Rest...) {
  submission->object = to;
  submission->source = from;
  submission->bytes = bytes;
  submission->direction = to_context == from_context ? Direction::kWithin : Direction::kBetween;
}

template <class Call, class First, class... Rest>
Submission describe_copy(CUstream stream, First first, Rest... rest) {
  Submission submission;
  submission.kind = shm::RecordKind::kCopy;
  submission.stream = normalise(stream, Call::kPerThread);
  if constexpr (is_box<First>) {
    describe_box(first, &submission);
  } else if constexpr (contains(Call::kName, "Peer")) {
    describe_peers(&submission, first, rest...);
  } else {
    describe_line<Call>(&submission, first, rest...);
  }
  return submission;
}

template <class Call, class... A>
CUresult copy_async(A... arguments) {
  const Submission submission = describe_copy<Call>(stream_in(arguments...), arguments...);
  return submit(submission, [&] { return Call::real(arguments...); });
}

// Copies without a stream block the caller while host memory is read or written, and only then.
template <class Call, class... A>
CUresult copy_now(A... arguments) {
  Submission submission = describe_copy<Call>(nullptr, arguments...);
  submission.blocks_caller = !leaves_host_out(submission.direction);
  return submit(submission, [&] { return Call::real(arguments...); });
}

}  // namespace tandem::shim::handlers
