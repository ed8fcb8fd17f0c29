// Memsets, and memory whose contents are discarded.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "driver.h"
#include "handlers/common.h"
#include "slots.h"
#include "submit.h"

namespace tandem::shim::handlers {

constexpr uint64_t element_bytes(const char* name) {
  return contains(name, "D32") ? 4 : contains(name, "D16") ? 2 : 1;
}

template <class Call>
Submission describe_set(CUstream stream, uint64_t address, uint64_t elements) {
  Submission submission;
  submission.kind = shm::RecordKind::kMemset;
  submission.stream = normalise(stream, Call::kPerThread);
  submission.object = address;
  submission.bytes = elements * element_bytes(Call::kName);
  submission.direction = Direction::kWithin;
  return submission;
}

// Addresses and sizes are CUdeviceptr and size_t, or unsigned in the first version of the calls. A
// memset without a stream does not block the caller: it is work of the default stream.
template <class Call, class Address, class Value, class Size>
CUresult set_now(Address address, Value value, Size count) {
  return submit(describe_set<Call>(nullptr, address, count),
                [&] { return Call::real(address, value, count); });
}
template <class Call>
Submission describe_lines(CUstream stream, uint64_t address, uint64_t width, uint64_t height) {
  Submission submission = describe_set<Call>(stream, address, width * height);
  if (height > 1) submission.record_flags = shm::kRecordScattered;
  return submission;
}
template <class Call, class Address, class Value, class Size>
CUresult set_now(Address address, Size pitch, Value value, Size width, Size height) {
  return submit(describe_lines<Call>(nullptr, address, width, height),
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
  return submit(describe_lines<Call>(stream, address, width, height),
                [&] { return Call::real(address, pitch, value, width, height, stream); });
}

}  // namespace tandem::shim::handlers
