// How much of a device is used, and by which processes.
#include <unistd.h>

#include <algorithm>

#include "nvml.h"

using namespace nvml;
using softgpu::DeviceFigures;

namespace {

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
struct ProcessUtilization {
  unsigned pid;
  unsigned long long time_us;
  unsigned sm, memory, encoder, decoder;
};

constexpr unsigned kPcieReplies = 0, kPcieReceives = 1;  // what the GPU transmits, and receives

unsigned percent(double ratio) { return static_cast<unsigned>(ratio * 100 + 0.5); }

template <class Process>
int list_processes(Handle handle, unsigned* count, Process* out) {
  DeviceFigures device;
  if (const int bad = figures_of_any(handle, &device)) return bad;
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
      const unsigned instance = device.processes[i].gpu_instance;
      out[i].gpu_instance = instance ? instance : kNoInstance;
      out[i].compute_instance = instance ? 0 : kNoInstance;
    }
  }
  return kSuccess;
}

int no_engine(Handle handle, unsigned* utilization, unsigned* period_us) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!utilization || !period_us) return kInvalidArgument;
  *utilization = 0;  // there is no encoder or decoder
  *period_us = 1'000'000;
  return kSuccess;
}

}  // namespace

NVML_API nvmlDeviceGetMemoryInfo(Handle handle, Memory* memory) {
  DeviceFigures device;
  if (const int bad = figures_of_any(handle, &device)) return bad;
  if (!memory) return kInvalidArgument;
  *memory = {device.total_bytes, device.total_bytes - device.used_bytes, device.used_bytes};
  return kSuccess;
}
NVML_API nvmlDeviceGetMemoryInfo_v2(Handle handle, MemoryV2* memory) {
  DeviceFigures device;
  if (const int bad = figures_of_any(handle, &device)) return bad;
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
  if (!device.instances.empty()) return kNotSupported;  // as documented, with MIG
  if (!utilization) return kInvalidArgument;
  *utilization = {static_cast<unsigned>(device.gpu_ratio * 100 + 0.5),
                  static_cast<unsigned>(device.memory_ratio * 100 + 0.5)};
  return kSuccess;
}

NVML_API nvmlDeviceGetBAR1MemoryInfo(Handle handle, Memory* memory) {
  DeviceFigures device;
  if (const int bad = figures_of_any(handle, &device))
    return bad;  // documented for MIG devices too
  if (!memory) return kInvalidArgument;
  *memory = {device.total_bytes, device.total_bytes, 0};  // nothing is mapped through it
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
  return put(h, count, 0U);
}
NVML_API nvmlDeviceGetGraphicsRunningProcesses_v2(Handle h, unsigned* count, ProcessV2*) {
  return put(h, count, 0U);
}
NVML_API nvmlDeviceGetGraphicsRunningProcesses_v3(Handle h, unsigned* count, ProcessV2*) {
  return put(h, count, 0U);
}
NVML_API nvmlDeviceGetMPSComputeRunningProcesses(Handle h, unsigned* count, ProcessV1*) {
  return put(h, count, 0U);  // MPS clients are listed as ordinary processes
}
NVML_API nvmlDeviceGetMPSComputeRunningProcesses_v2(Handle h, unsigned* count, ProcessV2*) {
  return put(h, count, 0U);
}
NVML_API nvmlDeviceGetMPSComputeRunningProcesses_v3(Handle h, unsigned* count, ProcessV2*) {
  return put(h, count, 0U);
}

// One sample per process, for the last second. Empty if nothing is newer than `last_seen_us`.
NVML_API nvmlDeviceGetProcessUtilization(Handle handle, ProcessUtilization* out, unsigned* count,
                                         unsigned long long last_seen_us) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!device.instances.empty()) return kNotSupported;
  if (!count) return kInvalidArgument;
  const unsigned long long now_us = device.now_ns / 1000;
  const unsigned room = *count;
  *count = now_us > last_seen_us ? static_cast<unsigned>(device.processes.size()) : 0;
  if (*count == 0) return kNotFound;
  if (!out || room < *count) return kInsufficientSize;
  for (unsigned i = 0; i < *count; ++i) {
    out[i] = {device.processes[i].pid, now_us, percent(device.processes[i].compute_ratio), 0, 0, 0};
  }
  return kSuccess;
}

NVML_API nvmlDeviceGetEncoderUtilization(Handle h, unsigned* utilization, unsigned* period_us) {
  return no_engine(h, utilization, period_us);
}
NVML_API nvmlDeviceGetDecoderUtilization(Handle h, unsigned* utilization, unsigned* period_us) {
  return no_engine(h, utilization, period_us);
}

// In KB/s over the last second, from the copy engines' utilisation.
NVML_API nvmlDeviceGetPcieThroughput(Handle handle, unsigned counter, unsigned* kb_per_s) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!device.instances.empty()) return kNotSupported;  // link traffic is not counted per instance
  if (counter > kPcieReceives) return kInvalidArgument;
  return put(handle, kb_per_s, [&](const DeviceFigures& d) {
    const double ratio = counter == kPcieReplies ? d.copy_from_ratio : d.copy_to_ratio;
    return ratio * d.copy_bytes_per_s / 1024;
  });
}

// All processors of this machine; bit i % 64 of word i / 64 is processor i.
NVML_API nvmlDeviceGetCpuAffinity(Handle handle, unsigned size, unsigned long* cpus) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!cpus || size == 0) return kInvalidArgument;
  const long online = std::max(1L, sysconf(_SC_NPROCESSORS_CONF));
  for (unsigned i = 0; i < size; ++i) {
    const long left = online - static_cast<long>(i) * 64;
    cpus[i] = left >= 64 ? ~0UL : left > 0 ? (1UL << left) - 1 : 0;
  }
  return kSuccess;
}
NVML_API nvmlDeviceGetCpuAffinityWithinScope(Handle handle, unsigned size, unsigned long* cpus,
                                             unsigned) {
  return nvmlDeviceGetCpuAffinity(handle, size, cpus);
}
