// What the files of libnvidia-ml.so.1 share. The prototypes and structures are those of NVML's
// public reference, written down here because nvml.h is not part of the packages the build needs.
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

// A device's handle is its index plus one; that of a MIG device, and of the GPU instance below it,
// has the instance's place on the device in bits of its own.
using Handle = void*;
inline Handle handle_of(size_t index) { return reinterpret_cast<Handle>(index + 1); }
inline Handle mig_handle_of(size_t index, size_t place) {
  return reinterpret_cast<Handle>((index + 1) | (place + 1) << 8);
}
inline size_t index_of(Handle handle) { return (reinterpret_cast<size_t>(handle) & 0xff) - 1; }
// Of a MIG device on its device; -1 for a whole one.
inline size_t place_of(Handle handle) { return (reinterpret_cast<size_t>(handle) >> 8) - 1; }
inline bool is_mig(Handle handle) { return reinterpret_cast<size_t>(handle) >> 8 != 0; }

bool initialised();

// Of all devices; of one that is still there.
int figures(std::vector<softgpu::DeviceFigures>* devices);
int figures_of(Handle handle, softgpu::DeviceFigures* device);
// As above, of a MIG device too; what asks for whole devices only does not support those.
int figures_of_any(Handle handle, softgpu::DeviceFigures* device);

// What `read` says of a device that exists goes to `out`.
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
// For what such a device does not have: still checks the handle.
int not_supported(Handle handle);

inline int put_text(const std::string& text, char* out, unsigned length) {
  if (!out) return kInvalidArgument;
  if (text.size() + 1 > length) return kInsufficientSize;
  memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

// The version field that NVML structures begin with: size and number.
template <class Struct>
constexpr unsigned version_of(unsigned number) {
  return static_cast<unsigned>(sizeof(Struct)) | number << 24;
}

std::string bus_id(size_t index, int domain_digits);

}  // namespace nvml
