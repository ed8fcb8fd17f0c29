// The few NVML functions whose answers the shim changes for a job with a memory limit, and the two
// that the shim calls itself. Prototypes and structures follow NVML's public reference: nvml.h is
// not in the packages that the build needs.
#pragma once

#include <cstdint>

namespace tandem::shim::nvml {

using Device = struct nvmlDevice_st*;
using Status = int;
inline constexpr Status kSuccess = 0;
inline constexpr Status kInsufficientSize = 7;
inline constexpr Status kFunctionNotFound = 13;
inline constexpr unsigned long long kNotAvailable = ~0ull;

struct Memory {  // nvmlMemory_t
  unsigned long long total, free, used;
};
struct MemoryV2 {  // nvmlMemory_v2_t; `version` includes its size
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct Utilization {  // nvmlUtilization_t, in percent
  unsigned gpu, memory;
};
struct ProcessV1 {  // nvmlProcessInfo_v1_t
  unsigned pid;
  unsigned long long used_bytes;
};
struct ProcessV2 {  // nvmlProcessInfo_v2_t, and the one of version 3
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
struct ProcessSample {  // nvmlProcessUtilizationSample_t, in percent
  unsigned pid;
  unsigned long long time_us;
  unsigned sm, memory, encoder, decoder;
};
static_assert(sizeof(Memory) == 24 && sizeof(MemoryV2) == 40 && sizeof(ProcessV1) == 16 &&
              sizeof(ProcessV2) == 24 && sizeof(ProcessSample) == 32);

#define TANDEM_NVML_CALLS(CALL)                                                     \
  CALL(nvmlDeviceGetComputeRunningProcesses, (Device, unsigned*, ProcessV1*))       \
  CALL(nvmlDeviceGetComputeRunningProcesses_v2, (Device, unsigned*, ProcessV2*))    \
  CALL(nvmlDeviceGetComputeRunningProcesses_v3, (Device, unsigned*, ProcessV2*))    \
  CALL(nvmlDeviceGetGraphicsRunningProcesses, (Device, unsigned*, ProcessV1*))      \
  CALL(nvmlDeviceGetGraphicsRunningProcesses_v2, (Device, unsigned*, ProcessV2*))   \
  CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, (Device, unsigned*, ProcessV2*))   \
  CALL(nvmlDeviceGetMPSComputeRunningProcesses, (Device, unsigned*, ProcessV1*))    \
  CALL(nvmlDeviceGetMPSComputeRunningProcesses_v2, (Device, unsigned*, ProcessV2*)) \
  CALL(nvmlDeviceGetMPSComputeRunningProcesses_v3, (Device, unsigned*, ProcessV2*)) \
  CALL(nvmlDeviceGetMemoryInfo, (Device, Memory*))                                  \
  CALL(nvmlDeviceGetMemoryInfo_v2, (Device, MemoryV2*))                             \
  CALL(nvmlDeviceGetUtilizationRates, (Device, Utilization*))

#define TANDEM_NVML_OWN_CALLS(CALL)                                                              \
  CALL(nvmlDeviceGetProcessUtilization, (Device, ProcessSample*, unsigned*, unsigned long long)) \
  CALL(nvmlDeviceGetUUID, (Device, char*, unsigned))

// The real functions; a null member means that this NVML lacks the function.
struct Library {
#define CALL(name, parameters) Status(*name) parameters = nullptr;
  TANDEM_NVML_CALLS(CALL)
  TANDEM_NVML_OWN_CALLS(CALL)
#undef CALL
};
// Null while no libnvidia-ml.so.1 is in the process: the shim never loads it.
const Library* library();

extern "C" {
#define CALL(name, parameters) Status name parameters;
TANDEM_NVML_CALLS(CALL)
#undef CALL
}

}  // namespace tandem::shim::nvml
