// Which devices there are, and their properties.
#include <cstdio>

#include "nvml.h"

using softgpu::DeviceFigures;

namespace nvml {

std::string bus_id(size_t index, int domain_digits) {
  char text[32];
  snprintf(text, sizeof text, "%0*x:01:%02x.0", domain_digits, 0, static_cast<unsigned>(index));
  return text;
}

}  // namespace nvml

using namespace nvml;

namespace {

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device, pci_subsystem;
  char bus_id[32];
};
struct PciInfoV2 {
  char bus_id[16];
  unsigned domain, bus, device, pci_device, pci_subsystem, reserved[4];
};

enum Architecture { kAmpere = 7, kAda = 8, kHopper = 9 };
enum Brand { kBrandNvidia = 14, kBrandGeForce = 5 };

unsigned architecture_of(const DeviceFigures& device) {
  if (device.major >= 9) return kHopper;
  return device.minor == 9 ? kAda : kAmpere;
}

std::string serial_of(Handle handle) {
  char text[32];
  snprintf(text, sizeof text, "%013zu", index_of(handle) + 1);
  return text;
}

int put_text_of(Handle handle, const std::string& text, char* out, unsigned length) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  return put_text(text, out, length);
}

}  // namespace

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
  if (devices[index].lost) return kGpuIsLost;
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
    const auto& instances = devices[i].instances;
    for (size_t k = 0; k < instances.size(); ++k) {
      if (instances[k].uuid != uuid) continue;
      *out = mig_handle_of(i, k);
      return kSuccess;
    }
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
  if (const int bad = figures_of_any(handle, &device)) return bad;
  return put_text(device.name, out, length);
}
NVML_API nvmlDeviceGetUUID(Handle handle, char* out, unsigned length) {
  DeviceFigures device;
  if (const int bad = figures_of_any(handle, &device)) return bad;
  return put_text(device.uuid, out, length);
}
NVML_API nvmlDeviceGetIndex(Handle handle, unsigned* index) {
  DeviceFigures device;
  if (const int bad = figures_of_any(handle, &device)) return bad;
  if (!index) return kInvalidArgument;
  *index = static_cast<unsigned>(is_mig(handle) ? place_of(handle) : index_of(handle));
  return kSuccess;
}
NVML_API nvmlDeviceGetMinorNumber(Handle handle, unsigned* number) {
  return put(handle, number, static_cast<unsigned>(index_of(handle)));
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

NVML_API nvmlDeviceGetCudaComputeCapability(Handle handle, int* major, int* minor) {
  DeviceFigures device;
  if (const int bad = figures_of_any(handle, &device)) return bad;
  if (!major || !minor) return kInvalidArgument;
  *major = static_cast<int>(device.major);
  *minor = static_cast<int>(device.minor);
  return kSuccess;
}
// NVML counts FP32 lanes, not SMs; their number per SM depends on the architecture.
NVML_API nvmlDeviceGetNumGpuCores(Handle handle, unsigned* cores) {
  return put(handle, cores, [](const DeviceFigures& device) {
    return device.sm_count * (device.major == 8 && device.minor == 0 ? 64U : 128U);
  });
}
NVML_API nvmlDeviceGetArchitecture(Handle handle, unsigned* architecture) {
  return put(handle, architecture, architecture_of);
}
NVML_API nvmlDeviceGetBrand(Handle handle, unsigned* brand) {
  return put(handle, brand, [](const DeviceFigures& device) {
    return architecture_of(device) == kAda ? kBrandGeForce : kBrandNvidia;
  });
}
NVML_API nvmlDeviceGetSerial(Handle handle, char* out, unsigned length) {
  return put_text_of(handle, serial_of(handle), out, length);
}
NVML_API nvmlDeviceGetBoardId(Handle handle, unsigned* id) {
  return put(handle, id, 0x100U + static_cast<unsigned>(index_of(handle)));
}
NVML_API nvmlDeviceGetMultiGpuBoard(Handle handle, unsigned* many) { return put(handle, many, 0U); }
NVML_API nvmlDeviceGetVbiosVersion(Handle handle, char* out, unsigned length) {
  return put_text_of(handle, "00.00.00.00.00", out, length);
}
NVML_API nvmlDeviceGetMemoryBusWidth(Handle handle, unsigned* bits) {
  return put(handle, bits, [](const DeviceFigures& device) { return device.memory_bus_bits; });
}
NVML_API nvmlDeviceGetBusType(Handle handle, unsigned* type) {
  return put(handle, type, 2U);  // PCIe
}
NVML_API nvmlDeviceGetMaxPcieLinkGeneration(Handle handle, unsigned* generation) {
  return put(handle, generation, [](const DeviceFigures& d) { return d.pcie_generation; });
}
NVML_API nvmlDeviceGetCurrPcieLinkGeneration(Handle handle, unsigned* generation) {
  return nvmlDeviceGetMaxPcieLinkGeneration(handle, generation);
}
NVML_API nvmlDeviceGetMaxPcieLinkWidth(Handle handle, unsigned* width) {
  return put(handle, width, 16U);
}
NVML_API nvmlDeviceGetCurrPcieLinkWidth(Handle handle, unsigned* width) {
  return put(handle, width, 16U);
}
NVML_API nvmlDeviceGetPcieReplayCounter(Handle handle, unsigned* count) {
  return put(handle, count, 0U);
}

// The modes are those of a server card that everyone may compute on.
NVML_API nvmlDeviceGetComputeMode(Handle handle, unsigned* mode) {
  return put(handle, mode, 0U);  // the default mode: shared by all
}
NVML_API nvmlDeviceGetPersistenceMode(Handle handle, unsigned* mode) {
  return put(handle, mode, 1U);  // the device process keeps state while there are no clients
}
NVML_API nvmlDeviceGetDisplayMode(Handle handle, unsigned* mode) { return put(handle, mode, 0U); }
NVML_API nvmlDeviceGetDisplayActive(Handle handle, unsigned* on) { return put(handle, on, 0U); }
NVML_API nvmlDeviceGetAccountingMode(Handle handle, unsigned* mode) {
  return put(handle, mode, 0U);
}
NVML_API nvmlDeviceGetAccountingBufferSize(Handle handle, unsigned* size) {
  return put(handle, size, 4000U);
}
NVML_API nvmlDeviceGetAccountingPids(Handle handle, unsigned* count, unsigned*) {
  return put(handle, count, 0U);
}

// One NUMA node with all processors of this machine.
NVML_API nvmlDeviceGetNumaNodeId(Handle handle, unsigned* node) { return put(handle, node, 0U); }
NVML_API nvmlDeviceGetMemoryAffinity(Handle handle, unsigned size, unsigned long* nodes, unsigned) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  if (!nodes || size == 0) return kInvalidArgument;
  for (unsigned i = 0; i < size; ++i) nodes[i] = i == 0 ? 1 : 0;
  return kSuccess;
}
