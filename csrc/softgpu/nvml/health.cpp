// Clocks, power, temperature, ECC.
//
// A software device draws no power. The values shown follow from its utilisation in the last
// second: power ranges from idle to the product's limit, temperature from 30 to 70 degrees. Clocks
// are fixed. Energy counts from the start: at the limit's power while the device computes, at idle
// power the rest of the time.
#include <unistd.h>

#include <algorithm>

#include "nvml.h"

using namespace nvml;
using softgpu::DeviceFigures;

namespace {

enum Clock { kGraphics = 0, kSm = 1, kMemory = 2, kVideo = 3 };
constexpr unsigned kIdleReason = 1;  // the only clock-throttle reason that occurs here
constexpr unsigned kCelsius = 0;     // the only sensor: the GPU's own
constexpr unsigned kCorrected = 0, kUncorrected = 1;
constexpr unsigned kVolatile = 0, kAggregate = 1;
constexpr unsigned kInDeviceMemory = 2;

struct EccCounts {
  unsigned long long l1, l2, device_memory, registers;
};
struct ViolationTime {
  unsigned long long reference_ns, violation_ns;
};
struct TemperatureV1 {
  unsigned version, sensor;
  int celsius;
};
struct Value {
  alignas(8) unsigned char bytes[8];
};
struct FieldValue {
  unsigned id, scope;
  long long time_us, latency_us;
  unsigned type;
  int status;
  Value value;
};

double idle_mw(const DeviceFigures& d) { return d.idle_w * 1000.0; }
double range_mw(const DeviceFigures& d) { return (d.power_limit_w - d.idle_w) * 1000.0; }

int clock_of(Handle handle, unsigned kind, unsigned* mhz) {
  if (!initialised()) return kUninitialized;
  if (kind > kVideo) return kInvalidArgument;
  return put(handle, mhz, [&](const DeviceFigures& device) {
    return kind == kMemory ? device.memory_clock_mhz : device.clock_mhz;
  });
}

int limit_mw(Handle handle, unsigned* mw) {
  return put(handle, mw, [](const DeviceFigures& d) { return d.power_limit_w * 1000; });
}

int ecc_figures(Handle handle, unsigned type, unsigned counter, DeviceFigures* device,
                unsigned long long* count) {
  if (const int bad = figures_of(handle, device)) return bad;
  if (!device->has_ecc) return kNotSupported;
  if (type > kUncorrected || counter > kAggregate) return kInvalidArgument;
  *count = type == kCorrected ? device->ecc_corrected : device->ecc_uncorrectable;
  return kSuccess;
}

}  // namespace

NVML_API nvmlDeviceGetClockInfo(Handle handle, unsigned kind, unsigned* mhz) {
  return clock_of(handle, kind, mhz);
}
NVML_API nvmlDeviceGetMaxClockInfo(Handle handle, unsigned kind, unsigned* mhz) {
  return clock_of(handle, kind, mhz);
}
NVML_API nvmlDeviceGetApplicationsClock(Handle handle, unsigned kind, unsigned* mhz) {
  return clock_of(handle, kind, mhz);
}
NVML_API nvmlDeviceGetDefaultApplicationsClock(Handle handle, unsigned kind, unsigned* mhz) {
  return clock_of(handle, kind, mhz);
}
NVML_API nvmlDeviceGetMaxCustomerBoostClock(Handle handle, unsigned kind, unsigned* mhz) {
  return clock_of(handle, kind, mhz);
}
NVML_API nvmlDeviceGetClock(Handle handle, unsigned kind, unsigned which, unsigned* mhz) {
  if (const int bad = clock_of(handle, kind, mhz)) return bad;
  return which > 3 ? int{kInvalidArgument} : int{kSuccess};
}
NVML_API nvmlDeviceGetSupportedMemoryClocks(Handle handle, unsigned* count, unsigned* mhz) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!count) return kInvalidArgument;
  const bool room = *count >= 1 && mhz;
  *count = 1;
  if (!room) return kInsufficientSize;
  *mhz = device.memory_clock_mhz;
  return kSuccess;
}
NVML_API nvmlDeviceGetSupportedGraphicsClocks(Handle handle, unsigned memory_mhz, unsigned* count,
                                              unsigned* mhz) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!count) return kInvalidArgument;
  if (memory_mhz != device.memory_clock_mhz) return kNotFound;
  const bool room = *count >= 1 && mhz;
  *count = 1;
  if (!room) return kInsufficientSize;
  *mhz = device.clock_mhz;
  return kSuccess;
}
NVML_API nvmlDeviceGetCurrentClocksEventReasons(Handle handle, unsigned long long* reasons) {
  return put(handle, reasons,
             [](const DeviceFigures& device) { return device.gpu_ratio > 0 ? 0U : kIdleReason; });
}
NVML_API nvmlDeviceGetCurrentClocksThrottleReasons(Handle handle, unsigned long long* reasons) {
  return nvmlDeviceGetCurrentClocksEventReasons(handle, reasons);
}
NVML_API nvmlDeviceGetSupportedClocksEventReasons(Handle handle, unsigned long long* reasons) {
  return put(handle, reasons, static_cast<unsigned long long>(kIdleReason));
}
NVML_API nvmlDeviceGetSupportedClocksThrottleReasons(Handle handle, unsigned long long* reasons) {
  return nvmlDeviceGetSupportedClocksEventReasons(handle, reasons);
}
NVML_API nvmlDeviceGetPerformanceState(Handle handle, unsigned* state) {
  return put(handle, state, 0U);  // always P0
}
NVML_API nvmlDeviceGetPowerState(Handle handle, unsigned* state) { return put(handle, state, 0U); }
NVML_API nvmlDeviceGetViolationStatus(Handle handle, unsigned policy, ViolationTime* time) {
  if (policy > 10) return kInvalidArgument;
  return put(handle, time, [](const DeviceFigures& d) { return ViolationTime{d.now_ns, 0}; });
}

NVML_API nvmlDeviceGetPowerUsage(Handle handle, unsigned* mw) {
  return put(handle, mw,
             [](const DeviceFigures& d) { return idle_mw(d) + range_mw(d) * d.gpu_ratio; });
}
NVML_API nvmlDeviceGetTotalEnergyConsumption(Handle handle, unsigned long long* mj) {
  return put(handle, mj, [](const DeviceFigures& d) {
    const auto seconds = [](uint64_t ns) { return static_cast<double>(ns) * 1e-9; };
    return idle_mw(d) * seconds(d.uptime_ns) + range_mw(d) * seconds(d.compute_busy_ns);
  });
}
NVML_API nvmlDeviceGetPowerManagementMode(Handle handle, unsigned* mode) {
  return put(handle, mode, 1U);
}
NVML_API nvmlDeviceGetPowerManagementLimit(Handle handle, unsigned* mw) {
  return limit_mw(handle, mw);
}
NVML_API nvmlDeviceGetEnforcedPowerLimit(Handle handle, unsigned* mw) {
  return limit_mw(handle, mw);
}
NVML_API nvmlDeviceGetPowerManagementDefaultLimit(Handle handle, unsigned* mw) {
  return limit_mw(handle, mw);
}
NVML_API nvmlDeviceGetPowerManagementLimitConstraints(Handle handle, unsigned* least_mw,
                                                      unsigned* most_mw) {
  if (const int bad = limit_mw(handle, most_mw)) return bad;
  return limit_mw(handle, least_mw);  // it cannot be changed
}

NVML_API nvmlDeviceGetTemperature(Handle handle, unsigned sensor, unsigned* celsius) {
  if (sensor != kCelsius) return kInvalidArgument;
  return put(handle, celsius, [](const DeviceFigures& d) { return 30 + 40 * d.gpu_ratio; });
}
NVML_API nvmlDeviceGetTemperatureV(Handle handle, TemperatureV1* temperature) {
  if (!temperature) return kInvalidArgument;
  if (temperature->version != version_of<TemperatureV1>(1)) return kVersionMismatch;
  unsigned celsius = 0;
  const int bad = nvmlDeviceGetTemperature(handle, temperature->sensor, &celsius);
  if (bad == kSuccess) temperature->celsius = static_cast<int>(celsius);
  return bad;
}
// Thresholds by NVML's number: shutdown, slowdown, memory maximum, GPU maximum.
NVML_API nvmlDeviceGetTemperatureThreshold(Handle handle, unsigned which, unsigned* celsius) {
  constexpr unsigned kThresholds[] = {95, 92, 95, 87};
  if (which >= sizeof kThresholds / sizeof kThresholds[0]) return not_supported(handle);
  return put(handle, celsius, kThresholds[which]);
}
// Server cards have no fan of their own.
NVML_API nvmlDeviceGetNumFans(Handle handle, unsigned* count) { return put(handle, count, 0U); }
NVML_API nvmlDeviceGetFanSpeed(Handle handle, unsigned*) { return not_supported(handle); }
NVML_API nvmlDeviceGetFanSpeed_v2(Handle handle, unsigned, unsigned*) {
  return not_supported(handle);
}

NVML_API nvmlDeviceGetEccMode(Handle handle, unsigned* current, unsigned* pending) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!device.has_ecc) return kNotSupported;
  if (!current || !pending) return kInvalidArgument;
  *current = *pending = 1;
  return kSuccess;
}
NVML_API nvmlDeviceGetDefaultEccMode(Handle handle, unsigned* mode) {
  unsigned pending = 0;
  return nvmlDeviceGetEccMode(handle, mode, &pending);
}
NVML_API nvmlDeviceGetTotalEccErrors(Handle handle, unsigned type, unsigned counter,
                                     unsigned long long* count) {
  DeviceFigures device;
  unsigned long long errors = 0;
  if (const int bad = ecc_figures(handle, type, counter, &device, &errors)) return bad;
  if (!count) return kInvalidArgument;
  *count = errors;
  return kSuccess;
}
// All errors here are in device memory.
NVML_API nvmlDeviceGetMemoryErrorCounter(Handle handle, unsigned type, unsigned counter,
                                         unsigned location, unsigned long long* count) {
  if (location > 8) return kInvalidArgument;
  const int bad = nvmlDeviceGetTotalEccErrors(handle, type, counter, count);
  if (bad == kSuccess && location != kInDeviceMemory) *count = 0;
  return bad;
}
NVML_API nvmlDeviceGetDetailedEccErrors(Handle handle, unsigned type, unsigned counter,
                                        EccCounts* counts) {
  if (!initialised()) return kUninitialized;
  if (!counts) return kInvalidArgument;
  *counts = EccCounts{};
  return nvmlDeviceGetTotalEccErrors(handle, type, counter, &counts->device_memory);
}
NVML_API nvmlDeviceClearEccErrorCounts(Handle handle, unsigned) {
  DeviceFigures device;
  const int bad = figures_of(handle, &device);
  return bad ? bad : kNoPermission;  // a monitoring tool must not reset counts that tests rely on
}
NVML_API nvmlDeviceGetRemappedRows(Handle handle, unsigned* corrected, unsigned* uncorrected,
                                   unsigned* pending, unsigned* failed) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!device.has_ecc) return kNotSupported;
  if (!corrected || !uncorrected || !pending || !failed) return kInvalidArgument;
  *corrected = *uncorrected = *pending = *failed = 0;
  return kSuccess;
}

// Each field has a status of its own that tells whether it is supported.
NVML_API nvmlDeviceGetFieldValues(Handle handle, int count, FieldValue* values) {
  constexpr unsigned kTotalEnergy = 83, kUnsignedLongLong = 3;
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (count <= 0 || !values) return kInvalidArgument;
  for (int i = 0; i < count; ++i) {
    FieldValue& field = values[i];
    field.time_us = static_cast<long long>(device.now_ns / 1000);
    field.latency_us = 0;
    field.value = {};
    field.status = kNotSupported;
    if (field.id != kTotalEnergy) continue;
    unsigned long long mj = 0;
    field.status = nvmlDeviceGetTotalEnergyConsumption(handle, &mj);
    field.type = kUnsignedLongLong;
    memcpy(field.value.bytes, &mj, sizeof mj);
  }
  return kSuccess;
}
