// Copies that come in batches or with attributes, and the moves of managed memory. The lists are
// read only after the driver has accepted them: a list that it refuses may be shorter than claimed.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "driver.h"
#include "handlers/common.h"
#include "handlers/copies.h"
#include "slots.h"
#include "submit.h"

namespace tandem::shim::handlers {

// `describe` completes the submission of a call that succeeded.
template <class Call, class Describe, class... A>
CUresult submit_list(shm::RecordKind kind, Describe describe, A... arguments) {
  Submission submission;
  submission.kind = kind;
  submission.stream = normalise(stream_in(arguments...), Call::kPerThread);
  return submit(submission, [&] {
    const CUresult result = Call::real(arguments...);
    if (result == CUDA_SUCCESS) describe(&submission);
    return result;
  });
}

inline uint64_t sum(const size_t* sizes, size_t count) {
  uint64_t bytes = 0;
  for (size_t i = 0; sizes && i < count; ++i) bytes += sizes[i];
  return bytes;
}

constexpr uint8_t scattered_if(bool yes) { return yes ? shm::kRecordScattered : uint8_t{0}; }

// One record per batch: its first copy stands for all, except for the byte count.
template <class Call, class... Rest>
CUresult copy_batch(CUdeviceptr* to, CUdeviceptr* from, size_t* sizes, size_t count, Rest... rest) {
  const auto describe = [&](Submission* submission) {
    submission->bytes = sum(sizes, count);
    if (!count || !to || !from) return;
    submission->object = to[0];
    submission->source = from[0];
    submission->record_flags = scattered_if(count > 1);
  };
  return submit_list<Call>(shm::RecordKind::kCopy, describe, to, from, sizes, count, rest...);
}

// For arrays the width is in elements, so their bytes are underestimated.
template <class Operation>
uint64_t bytes_in(const Operation& operation) {
  return uint64_t{operation.extent.width} * operation.extent.height * operation.extent.depth;
}
template <class Operation>
void describe_first(const Operation& operation, Submission* submission) {
  const bool to_array = operation.dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
  const bool from_array = operation.src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY;
  submission->object =
      to_array ? as_number(operation.dst.op.array.array) : operation.dst.op.ptr.ptr;
  submission->record_flags = shm::kRecordScattered;
  if (to_array && from_array) submission->direction = Direction::kWithin;
  else if (!to_array && !from_array) submission->source = operation.src.op.ptr.ptr;
}
template <class Call, class Operation, class... Rest>
CUresult copy_boxes(size_t count, Operation* operations, Rest... rest) {
  const auto describe = [&](Submission* submission) {
    if (!count || !operations) return;
    describe_first(operations[0], submission);
    for (size_t i = 0; i < count; ++i) submission->bytes += bytes_in(operations[i]);
  };
  return submit_list<Call>(shm::RecordKind::kCopy, describe, count, operations, rest...);
}
template <class Call, class Operation>
CUresult copy_box(Operation* operation, unsigned long long flags, CUstream stream) {
  const auto describe = [&](Submission* submission) {
    if (!operation) return;
    describe_first(*operation, submission);
    submission->bytes = bytes_in(*operation);
  };
  return submit_list<Call>(shm::RecordKind::kCopy, describe, operation, flags, stream);
}

// Copies between the memories of a fabric's members; only the device's end of each copy is an
// address.
template <class Call, class Operation>
CUresult copy_fabric(size_t count, Operation* operations, unsigned long long flags,
                     CUstream stream) {
  const auto describe = [&](Submission* submission) {
    submission->direction = Direction::kBetween;
    submission->record_flags = shm::kRecordScattered;
    for (size_t i = 0; operations && i < count; ++i) submission->bytes += operations[i].size;
  };
  return submit_list<Call>(shm::RecordKind::kCopy, describe, count, operations, flags, stream);
}

template <class Call, class Parameters, class... Rest>
CUresult decompress(Parameters* parameters, size_t count, Rest... rest) {
  const auto describe = [&](Submission* submission) {
    submission->direction = Direction::kWithin;
    submission->record_flags = shm::kRecordScattered;  // the sources are not named
    if (!count || !parameters) return;
    submission->object = as_number(parameters[0].dst);
    for (size_t i = 0; i < count; ++i) submission->bytes += parameters[i].dstNumBytes;
  };
  return submit_list<Call>(shm::RecordKind::kCopy, describe, parameters, count, rest...);
}

inline Direction direction_to(CUdevice device) {
  return device == CU_DEVICE_CPU ? Direction::kFromDevice : Direction::kToDevice;
}
inline Direction direction_to(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? Direction::kToDevice
                                                      : Direction::kFromDevice;
}

template <class Call, class Place, class... Rest>
CUresult prefetch(CUdeviceptr address, size_t bytes, Place place, Rest... rest) {
  Submission submission;
  submission.kind = shm::RecordKind::kCopy;
  submission.stream = normalise(stream_in(rest...), Call::kPerThread);
  submission.object = address;
  submission.bytes = bytes;
  submission.direction = direction_to(place);
  return submit(submission, [&] { return Call::real(address, bytes, place, rest...); });
}
template <class Call, class... Rest>
CUresult prefetch_batch(CUdeviceptr* addresses, size_t* sizes, size_t count, CUmemLocation* places,
                        Rest... rest) {
  const auto describe = [&](Submission* submission) {
    submission->bytes = sum(sizes, count);
    if (!count || !addresses || !places) return;
    submission->object = addresses[0];
    submission->direction = direction_to(places[0]);
    submission->record_flags = scattered_if(count > 1);
  };
  return submit_list<Call>(shm::RecordKind::kCopy, describe, addresses, sizes, count, places,
                           rest...);
}

// Pages are given back in stream order; no byte moves, so none is counted.
template <class Call, class... Rest>
CUresult discard_batch(CUdeviceptr* addresses, size_t* sizes, size_t count, Rest... rest) {
  const auto describe = [&](Submission* submission) {
    submission->direction = Direction::kWithin;
    submission->record_flags = scattered_if(count > 0);  // and none of its bytes is counted
    if (count && addresses) submission->object = addresses[0];
  };
  return submit_list<Call>(shm::RecordKind::kMemset, describe, addresses, sizes, count, rest...);
}

}  // namespace tandem::shim::handlers
