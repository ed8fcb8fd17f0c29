// Shared by the files of libnvidia-ml.so.1. The prototypes and structures follow NVML's public
// reference; they are written down here because nvml.h is not in the packages the build needs.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "figures.h"

#define NVML_API extern "C" __attribute__((visibility("default"))) int

namespace nvml {

enum Status {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kGpuIsLost = 15,
  kInUse = 19,
  kInsufficientResources = 23,
  kVersionMismatch = 25,
  kUnknown = 999,
};

constexpr unsigned kNoInstance = 0xffffffff;

// A device's handle is its index plus one. A MIG device's handle also holds, in separate bits, its
// place in the device's list of instances; mig.cpp keeps an instance's number in the same bits.
using Handle = void*;
inline Handle handle_of(size_t index) { return reinterpret_cast<Handle>(index + 1); }
inline Handle mig_handle_of(size_t index, size_t place) {
  return reinterpret_cast<Handle>((index + 1) | (place + 1) << 8);
}
inline size_t index_of(Handle handle) { return (reinterpret_cast<size_t>(handle) & 0xff) - 1; }
// A MIG device's place in its device's list of instances; -1 for a whole device.
inline size_t place_of(Handle handle) { return (reinterpret_cast<size_t>(handle) >> 8) - 1; }
inline bool is_mig(Handle handle) { return reinterpret_cast<size_t>(handle) >> 8 != 0; }

bool initialised();

// The figures of all devices.
int figures(std::vector<softgpu::DeviceFigures>* devices);
// The figures of a whole device that is not lost; kNotSupported for a MIG device.
int figures_of(Handle handle, softgpu::DeviceFigures* device);
// Like figures_of, for MIG devices, too.
int figures_of_any(Handle handle, softgpu::DeviceFigures* device);

// Writes to `out` what `read` returns for the device, if it exists.
template <class Value, class Read>
int put(Handle handle, Value* out, Read read) {
  softgpu::DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!out) return kInvalidArgument;
  *out = static_cast<Value>(read(device));
  return kSuccess;
}
template <class Value>
int put(Handle handle, Value* out, Value value) {
  return put(handle, out, [&](const softgpu::DeviceFigures&) { return value; });
}
// For what such a device lacks: kNotSupported, or the handle's error if it is not valid.
int not_supported(Handle handle);

inline int put_text(const std::string& text, char* out, unsigned length) {
  if (!out) return kInvalidArgument;
  if (text.size() + 1 > length) return kInsufficientSize;
  memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

// The version field at the start of NVML structures: size and version number.
template <class Struct>
constexpr unsigned version_of(unsigned number) {
  return static_cast<unsigned>(sizeof(Struct)) | number << 24;
}

std::string bus_id(size_t index, int domain_digits);

}  // namespace nvml
