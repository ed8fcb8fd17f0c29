// libnvidia-ml.so.1 of the software GPU. The prototypes are those of NVML's public reference,
// written down here because nvml.h is not part of the packages that the build needs.
#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>

#include "figures.h"

#define NVML_API extern "C" __attribute__((visibility("default"))) int

namespace {

using softgpu::DeviceFigures;

enum Status {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kUnknown = 999,
};

struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
struct ProcessV1 {
  unsigned pid;
  unsigned long long used_bytes;
};
struct ProcessV2 {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device, pci_subsystem;
  char bus_id[32];
};
struct PciInfoV2 {
  char bus_id[16];
  unsigned domain, bus, device, pci_device, pci_subsystem, reserved[4];
};

constexpr unsigned kNoInstance = 0xffffffff;
std::atomic<int> g_initialised{0};  // nvmlInit calls not yet shut down; relaxed, orders nothing

// A handle is the index plus one.
using Handle = void*;
Handle handle_of(size_t index) { return reinterpret_cast<Handle>(index + 1); }
size_t index_of(Handle handle) { return reinterpret_cast<size_t>(handle) - 1; }

int figures(std::vector<DeviceFigures>* devices) {
  if (g_initialised.load(std::memory_order_relaxed) <= 0) return kUninitialized;
  return softgpu::read_figures(devices) ? kSuccess : kUnknown;
}

int figures_of(Handle handle, DeviceFigures* device) {
  std::vector<DeviceFigures> devices;
  if (const int bad = figures(&devices)) return bad;
  if (index_of(handle) >= devices.size()) return kInvalidArgument;
  *device = devices[index_of(handle)];
  return kSuccess;
}

int put_text(const std::string& text, char* out, unsigned length) {
  if (!out) return kInvalidArgument;
  if (text.size() + 1 > length) return kInsufficientSize;
  memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

template <class Process>
int list_processes(Handle handle, unsigned* count, Process* out) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!count) return kInvalidArgument;
  const auto have = static_cast<unsigned>(device.processes.size());
  const unsigned room = *count;
  *count = have;
  if (have == 0) return kSuccess;
  if (room < have || !out) return kInsufficientSize;
  for (unsigned i = 0; i < have; ++i) {
    out[i] = Process{};
    out[i].pid = device.processes[i].pid;
    out[i].used_bytes = device.processes[i].used_bytes;
    if constexpr (sizeof(Process) == sizeof(ProcessV2)) {
      out[i].gpu_instance = out[i].compute_instance = kNoInstance;
    }
  }
  return kSuccess;
}

std::string bus_id(size_t index, int domain_digits) {
  char text[32];
  snprintf(text, sizeof text, "%0*x:01:%02x.0", domain_digits, 0, static_cast<unsigned>(index));
  return text;
}

int no_processes(Handle handle, unsigned* count) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!count) return kInvalidArgument;
  *count = 0;
  return kSuccess;
}

}  // namespace

NVML_API nvmlInitWithFlags(unsigned) {
  std::vector<DeviceFigures> devices;
  if (!softgpu::read_figures(&devices)) return kDriverNotLoaded;
  g_initialised.fetch_add(1, std::memory_order_relaxed);
  return kSuccess;
}
NVML_API nvmlInit_v2() { return nvmlInitWithFlags(0); }
NVML_API nvmlInit() { return nvmlInitWithFlags(0); }
NVML_API nvmlShutdown() {
  if (g_initialised.load(std::memory_order_relaxed) <= 0) return kUninitialized;
  g_initialised.fetch_sub(1, std::memory_order_relaxed);
  return kSuccess;
}

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(int status) {
  switch (status) {
    case kSuccess: return "The operation was successful";
    case kUninitialized: return "NVML was not first initialized with nvmlInit()";
    case kInvalidArgument: return "A supplied argument is invalid";
    case kNotSupported: return "The requested operation is not available on target device";
    case kNotFound: return "A query to find an object was unsuccessful";
    case kInsufficientSize: return "An input argument is not large enough";
    case kDriverNotLoaded: return "NVIDIA driver is not loaded";
    default: return "An internal driver error occurred";
  }
}

NVML_API nvmlSystemGetDriverVersion(char* out, unsigned length) {
  return put_text("580.0.softgpu", out, length);
}
NVML_API nvmlSystemGetNVMLVersion(char* out, unsigned length) {
  return put_text("13.580.0", out, length);
}
NVML_API nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (!version) return kInvalidArgument;
  *version = CUDA_VERSION;
  return kSuccess;
}
NVML_API nvmlSystemGetCudaDriverVersion(int* version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}

NVML_API nvmlDeviceGetCount_v2(unsigned* count) {
  std::vector<DeviceFigures> devices;
  if (const int bad = figures(&devices)) return bad;
  if (!count) return kInvalidArgument;
  *count = static_cast<unsigned>(devices.size());
  return kSuccess;
}
NVML_API nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }

NVML_API nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle* out) {
  std::vector<DeviceFigures> devices;
  if (const int bad = figures(&devices)) return bad;
  if (!out || index >= devices.size()) return kInvalidArgument;
  *out = handle_of(index);
  return kSuccess;
}
NVML_API nvmlDeviceGetHandleByIndex(unsigned index, Handle* out) {
  return nvmlDeviceGetHandleByIndex_v2(index, out);
}
NVML_API nvmlDeviceGetHandleByUUID(const char* uuid, Handle* out) {
  std::vector<DeviceFigures> devices;
  if (const int bad = figures(&devices)) return bad;
  if (!uuid || !out) return kInvalidArgument;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].uuid != uuid) continue;
    *out = handle_of(i);
    return kSuccess;
  }
  return kNotFound;
}
NVML_API nvmlDeviceGetHandleByPciBusId_v2(const char* id, Handle* out) {
  std::vector<DeviceFigures> devices;
  if (const int bad = figures(&devices)) return bad;
  if (!id || !out) return kInvalidArgument;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (bus_id(i, 4) != id && bus_id(i, 8) != id) continue;
    *out = handle_of(i);
    return kSuccess;
  }
  return kNotFound;
}
NVML_API nvmlDeviceGetHandleByPciBusId(const char* id, Handle* out) {
  return nvmlDeviceGetHandleByPciBusId_v2(id, out);
}

NVML_API nvmlDeviceGetName(Handle handle, char* out, unsigned length) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  return put_text(device.name, out, length);
}
NVML_API nvmlDeviceGetUUID(Handle handle, char* out, unsigned length) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  return put_text(device.uuid, out, length);
}
NVML_API nvmlDeviceGetIndex(Handle handle, unsigned* index) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!index) return kInvalidArgument;
  *index = static_cast<unsigned>(index_of(handle));
  return kSuccess;
}
NVML_API nvmlDeviceGetMinorNumber(Handle handle, unsigned* number) {
  return nvmlDeviceGetIndex(handle, number);
}

NVML_API nvmlDeviceGetMemoryInfo(Handle handle, Memory* memory) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!memory) return kInvalidArgument;
  *memory = {device.total_bytes, device.total_bytes - device.used_bytes, device.used_bytes};
  return kSuccess;
}
NVML_API nvmlDeviceGetMemoryInfo_v2(Handle handle, MemoryV2* memory) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!memory || memory->version != (sizeof *memory | 2U << 24)) return kInvalidArgument;
  memory->total = device.total_bytes;
  memory->reserved = 0;
  memory->free = device.total_bytes - device.used_bytes;
  memory->used = device.used_bytes;
  return kSuccess;
}
NVML_API nvmlDeviceGetUtilizationRates(Handle handle, Utilization* utilization) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!utilization) return kInvalidArgument;
  *utilization = {static_cast<unsigned>(device.gpu_ratio * 100 + 0.5),
                  static_cast<unsigned>(device.memory_ratio * 100 + 0.5)};
  return kSuccess;
}

NVML_API nvmlDeviceGetComputeRunningProcesses(Handle h, unsigned* count, ProcessV1* out) {
  return list_processes(h, count, out);
}
NVML_API nvmlDeviceGetComputeRunningProcesses_v2(Handle h, unsigned* count, ProcessV2* out) {
  return list_processes(h, count, out);
}
NVML_API nvmlDeviceGetComputeRunningProcesses_v3(Handle h, unsigned* count, ProcessV2* out) {
  return list_processes(h, count, out);
}
NVML_API nvmlDeviceGetGraphicsRunningProcesses(Handle h, unsigned* count, ProcessV1*) {
  return no_processes(h, count);
}
NVML_API nvmlDeviceGetGraphicsRunningProcesses_v2(Handle h, unsigned* count, ProcessV2*) {
  return no_processes(h, count);
}
NVML_API nvmlDeviceGetGraphicsRunningProcesses_v3(Handle h, unsigned* count, ProcessV2*) {
  return no_processes(h, count);
}

NVML_API nvmlDeviceGetPciInfo_v3(Handle handle, PciInfo* info) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!info) return kInvalidArgument;
  *info = PciInfo{};
  info->bus = 1;
  info->device = static_cast<unsigned>(index_of(handle));
  memcpy(info->bus_id_legacy, bus_id(index_of(handle), 4).c_str(), 13);
  memcpy(info->bus_id, bus_id(index_of(handle), 8).c_str(), 17);
  return kSuccess;
}
NVML_API nvmlDeviceGetPciInfo_v2(Handle handle, PciInfoV2* info) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!info) return kInvalidArgument;
  *info = PciInfoV2{};
  info->bus = 1;
  info->device = static_cast<unsigned>(index_of(handle));
  memcpy(info->bus_id, bus_id(index_of(handle), 4).c_str(), 13);
  return kSuccess;
}

NVML_API nvmlDeviceGetComputeMode(Handle handle, unsigned* mode) {
  return no_processes(handle, mode);  // 0: default, shared by all
}
NVML_API nvmlDeviceGetMigMode(Handle handle, unsigned*, unsigned*) {
  DeviceFigures device;
  const int bad = figures_of(handle, &device);
  return bad ? bad : kNotSupported;  // what devices without MIG answer
}
NVML_API nvmlDeviceGetCudaComputeCapability(Handle handle, int* major, int* minor) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!major || !minor) return kInvalidArgument;
  *major = static_cast<int>(device.major);
  *minor = static_cast<int>(device.minor);
  return kSuccess;
}
// NVML counts FP32 lanes, not SMs: so many an SM, by architecture.
NVML_API nvmlDeviceGetNumGpuCores(Handle handle, unsigned* cores) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!cores) return kInvalidArgument;
  *cores = device.sm_count * (device.major == 8 && device.minor == 0 ? 64 : 128);
  return kSuccess;
}
NVML_API nvmlDeviceGetMaxClockInfo(Handle handle, unsigned kind, unsigned* mhz) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!mhz) return kInvalidArgument;
  if (kind > 1) return kNotSupported;  // graphics and SM clocks only
  *mhz = device.clock_mhz;
  return kSuccess;
}
NVML_API nvmlDeviceGetClockInfo(Handle handle, unsigned kind, unsigned* mhz) {
  return nvmlDeviceGetMaxClockInfo(handle, kind, mhz);
}
NVML_API nvmlDeviceGetPersistenceMode(Handle handle, unsigned* mode) {
  return no_processes(handle, mode);  // 0: off
}
