// Initialisation and shutdown, system queries and error strings.
#include <atomic>
#include <cstdio>

#include "cuda_version.h"
#include "nvml.h"

namespace nvml {
namespace {

std::atomic<int> g_initialised{0};  // nvmlInit calls not yet shut down; relaxed: orders nothing

struct Error {
  int status;
  const char* text;
};
constexpr Error kErrors[] = {
    {0, "Success"},
    {1, "Uninitialized"},
    {2, "Invalid Argument"},
    {3, "Not Supported"},
    {4, "Insufficient Permissions"},
    {5, "Already Initialized"},
    {6, "Not Found"},
    {7, "Insufficient Size"},
    {8, "Insufficient External Power"},
    {9, "Driver Not Loaded"},
    {10, "Timeout"},
    {11, "Interrupt Request Issue"},
    {12, "NVML Shared Library Not Found"},
    {13, "Function Not Found"},
    {14, "Corrupted infoROM"},
    {15, "GPU is lost"},
    {16, "GPU requires reset"},
    {17, "The operating system has blocked the request"},
    {18, "RM has detected an NVML/RM version mismatch"},
    {19, "In use by another client"},
    {20, "Insufficient Memory"},
    {21, "No data"},
    {22, "The requested vgpu operation is not available on target device, because ECC is enabled"},
    {23, "Insufficient Resources"},
    {24, "Frequency Not Supported"},
    {25, "Argument version mismatch"},
    {26, "The requested functionality has been deprecated"},
    {27, "System is not ready for the request"},
    {28, "No GPUs were found"},
    {29, "Resource not in correct state to perform requested operation"},
};

}  // namespace

bool initialised() { return g_initialised.load(std::memory_order_relaxed) > 0; }

int figures(std::vector<softgpu::DeviceFigures>* devices) {
  if (!initialised()) return kUninitialized;
  return softgpu::read_figures(devices) ? kSuccess : kUnknown;
}

int figures_of_any(Handle handle, softgpu::DeviceFigures* device) {
  std::vector<softgpu::DeviceFigures> devices;
  if (const int bad = figures(&devices)) return bad;
  if (index_of(handle) >= devices.size()) return kInvalidArgument;
  const softgpu::DeviceFigures& whole = devices[index_of(handle)];
  if (is_mig(handle) && place_of(handle) >= whole.instances.size()) return kInvalidArgument;
  *device = is_mig(handle) ? whole.instances[place_of(handle)] : whole;
  return device->lost ? kGpuIsLost : kSuccess;
}

int figures_of(Handle handle, softgpu::DeviceFigures* device) {
  const int bad = figures_of_any(handle, device);
  return !bad && is_mig(handle) ? kNotSupported : bad;
}

int not_supported(Handle handle) {
  softgpu::DeviceFigures device;
  const int bad = figures_of(handle, &device);
  return bad ? bad : kNotSupported;
}

}  // namespace nvml

using namespace nvml;

NVML_API nvmlInitWithFlags(unsigned) {
  std::vector<softgpu::DeviceFigures> devices;
  if (!softgpu::read_figures(&devices)) return kDriverNotLoaded;
  g_initialised.fetch_add(1, std::memory_order_relaxed);
  return kSuccess;
}
NVML_API nvmlInit_v2() { return nvmlInitWithFlags(0); }
NVML_API nvmlInit() { return nvmlInitWithFlags(0); }
NVML_API nvmlShutdown() {
  // A surplus call is no error: so it is in NVIDIA's library, contrary to its documentation.
  if (initialised()) g_initialised.fetch_sub(1, std::memory_order_relaxed);
  return kSuccess;
}

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(int status) {
  for (const Error& error : kErrors) {
    if (error.status == status) return error.text;
  }
  return "Unknown Error";
}

NVML_API nvmlSystemGetDriverVersion(char* out, unsigned length) {
  return initialised() ? put_text("580.0.softgpu", out, length) : int{kUninitialized};
}
NVML_API nvmlSystemGetNVMLVersion(char* out, unsigned length) {
  return put_text("13.580.0", out, length);  // the library's own version: needs no nvmlInit
}
NVML_API nvmlSystemGetCudaDriverVersion_v2(int* version) {
  if (!initialised()) return kUninitialized;
  if (!version) return kInvalidArgument;
  *version = softgpu::cuda_version();
  return kSuccess;
}
NVML_API nvmlSystemGetCudaDriverVersion(int* version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}
NVML_API nvmlSystemGetProcessName(unsigned pid, char* name, unsigned length) {
  if (!initialised()) return kUninitialized;
  if (!name || length == 0) return kInvalidArgument;
  FILE* file = fopen(("/proc/" + std::to_string(pid) + "/cmdline").c_str(), "re");
  if (!file) return kNotFound;
  char text[1024] = "";
  const size_t got = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[got] = '\0';  // prints only the program's name: arguments follow as separate strings
  snprintf(name, length, "%s", text);
  return kSuccess;
}
