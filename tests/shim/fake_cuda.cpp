// A libcuda.so.1 that computes nothing and counts everything, so tests see what the shim passes on.
// FAKE(name) marks a function with a body of its own. conftest.py generates the others from the
// signatures in calls.def; each counts itself and returns success. Tests call every function that
// the shim interposes with zeros and check its count, so each body must accept zeros and count.
//
//   FAKE_NEW_REVISION  a base name that has another revision from version 99.0 on
//   FAKE_VERSION       the CUDA version of this driver; only dlsym finds names that came later
//   fake_count(name)   the number of calls of that name so far
//   fake_device(n)     from now on the current context belongs to device n
//   fake_hold(1 / 0)   the GPU stops before markers and events / continues and finishes them
#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

namespace {

struct Counter {
  const char* name;
  std::atomic<int> count;
};
Counter g_counters[1024];
std::atomic<int> g_counter_count{0};
std::mutex g_mutex;

void count(const char* name) {
  const std::lock_guard lock(g_mutex);
  for (int i = 0; i < g_counter_count; ++i) {
    if (std::strcmp(g_counters[i].name, name) == 0) {
      ++g_counters[i].count;
      return;
    }
  }
  g_counters[g_counter_count].name = name;
  g_counters[g_counter_count].count = 1;
  ++g_counter_count;
}

int setting(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoi(value) : otherwise;
}

struct Write {
  std::atomic<unsigned long long>* at;
  unsigned long long value;
};
bool g_held = false;
std::atomic<int> g_device{0};  // of the current context
std::vector<Write> g_waiting;
std::atomic<CUdeviceptr> g_next_address{0x7000'0000'0000};
thread_local CUstream g_capturing = nullptr;
std::atomic<CUstream> g_any_capture{nullptr};

}  // namespace

#define FAKE(name) extern "C" __attribute__((visibility("default"))) CUresult name

extern "C" __attribute__((visibility("default"))) int fake_count(const char* name) {
  const std::lock_guard lock(g_mutex);
  for (int i = 0; i < g_counter_count; ++i)
    if (std::strcmp(g_counters[i].name, name) == 0) return g_counters[i].count;
  return 0;
}
// What a later driver returns from version 99.0 on for the name in FAKE_NEW_REVISION.
extern "C" __attribute__((visibility("default"))) int fake_new_revision() { return 4242; }
extern "C" __attribute__((visibility("default"))) void fake_hold(int held) {
  const std::lock_guard lock(g_mutex);
  g_held = held != 0;
  if (g_held) return;
  for (const Write& write : g_waiting) write.at->store(write.value);
  g_waiting.clear();
}

extern "C" __attribute__((visibility("default"))) void fake_device(int device) {
  g_device = device;
}

// Tells whether FAKE_REFUSES names this call in the job's environment.
bool refuses(const char* name) {
  const char* refused = std::getenv("FAKE_REFUSES");
  return refused && std::strcmp(refused, name) == 0;
}

FAKE(cuCtxGetCurrent)(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(setting("FAKE_CONTEXT", 0) ? 0x1000l : 0l);
  return CUDA_SUCCESS;
}
FAKE(cuCtxGetDevice)(CUdevice* device) {
  *device = g_device;
  return CUDA_SUCCESS;
}
FAKE(cuCtxSetCurrent)(CUcontext) { return CUDA_SUCCESS; }
FAKE(cuDeviceGetAttribute)(int* value, CUdevice_attribute attribute, CUdevice) {
  *value = attribute == CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS
               ? setting("FAKE_MEMOPS", 1)
               : 100;
  return CUDA_SUCCESS;
}
FAKE(cuDeviceGetUuid_v2)(CUuuid* uuid, CUdevice device) {
  std::memset(uuid->bytes, 7 + device, sizeof(uuid->bytes));
  return CUDA_SUCCESS;
}
FAKE(cuDevicePrimaryCtxGetState)(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 0;
  return CUDA_SUCCESS;
}
FAKE(cuDeviceTotalMem_v2)(size_t* bytes, CUdevice) {
  count("cuDeviceTotalMem_v2");
  if (bytes) *bytes = 1000u << 20;
  return CUDA_SUCCESS;
}
FAKE(cuEventCreate)(CUevent* event, unsigned) {
  count("cuEventCreate");
  static std::atomic<long> next{0x2000};
  *event = reinterpret_cast<CUevent>(++next);
  return CUDA_SUCCESS;
}
FAKE(cuEventDestroy_v2)(CUevent) {
  count("cuEventDestroy_v2");
  return CUDA_SUCCESS;
}
FAKE(cuEventElapsedTime)(float* ms, CUevent, CUevent) {
  *ms = 0.01f;
  return CUDA_SUCCESS;
}
FAKE(cuEventQuery)(CUevent) {
  count("cuEventQuery");
  const std::lock_guard lock(g_mutex);
  return g_held ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
FAKE(cuMemHostGetDevicePointer_v2)(CUdeviceptr* address, void* host, unsigned) {
  *address = reinterpret_cast<CUdeviceptr>(host);
  return CUDA_SUCCESS;
}
FAKE(cuMemHostRegister_v2)(void*, size_t, unsigned) {
  count("cuMemHostRegister_v2");
  return CUDA_SUCCESS;
}
FAKE(cuPointerGetAttributes)(unsigned many, CUpointer_attribute*, void** types,
                             CUdeviceptr address) {
  count("cuPointerGetAttributes");
  if (!many) return CUDA_SUCCESS;
  const bool is_known = address >= 0x7000'0000'0000;  // everything else was never registered
  *static_cast<unsigned*>(types[0]) = is_known ? CU_MEMORYTYPE_DEVICE : 0u;
  return CUDA_SUCCESS;
}
FAKE(cuStreamGetCtx)(CUstream, CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(0x1000l);
  return CUDA_SUCCESS;
}
FAKE(cuStreamGetFlags)(CUstream, unsigned* flags) {
  *flags = setting("FAKE_BLOCKING", false) ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING;
  return CUDA_SUCCESS;
}
FAKE(cuStreamIsCapturing)(CUstream stream, CUstreamCaptureStatus* status) {
  count("cuStreamIsCapturing");
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  *status = stream && stream == g_any_capture.load() ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                                     : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
FAKE(cuThreadExchangeStreamCaptureMode)(CUstreamCaptureMode*) { return CUDA_SUCCESS; }
FAKE(cuStreamBeginCapture_v2)(CUstream stream, CUstreamCaptureMode) {
  count("cuStreamBeginCapture_v2");
  g_any_capture = stream;
  return CUDA_SUCCESS;
}
FAKE(cuStreamEndCapture)(CUstream, CUgraph*) {
  count("cuStreamEndCapture");
  g_any_capture = nullptr;
  return CUDA_SUCCESS;
}
FAKE(cuStreamWriteValue64_v2)(CUstream, CUdeviceptr address, cuuint64_t value, unsigned) {
  count("cuStreamWriteValue64_v2");
  if (!address) return CUDA_ERROR_INVALID_VALUE;
  if (address < 0x10000) return CUDA_SUCCESS;  // there is no memory there
  const Write write{reinterpret_cast<std::atomic<unsigned long long>*>(address), value};
  const std::lock_guard lock(g_mutex);
  if (g_held) g_waiting.push_back(write);
  else write.at->store(write.value);
  return CUDA_SUCCESS;
}
FAKE(cuMemAlloc_v2)(CUdeviceptr* address, size_t bytes) {
  count("cuMemAlloc_v2");
  if (!address) return CUDA_ERROR_INVALID_VALUE;
  *address = g_next_address.fetch_add((bytes + 511) / 512 * 512);
  return CUDA_SUCCESS;
}
FAKE(cuMemGetInfo_v2)(size_t* free_bytes, size_t* total_bytes) {
  count("cuMemGetInfo_v2");
  if (free_bytes) *free_bytes = 900u << 20;
  if (total_bytes) *total_bytes = 1000u << 20;
  return CUDA_SUCCESS;
}

namespace {
struct Version {
  const char* base;
  const char* exported;
  int since;
  bool per_thread;
};
const Version kVersions[] = {
#define CU_VERSION(base, exported, since, per_thread) {#base, #exported, since, per_thread},
#include "cu_versions.inc"
};

CUresult look_up(const char* name, void** function, int version, cuuint64_t flags) {
  if (!name || !function) return CUDA_ERROR_INVALID_VALUE;
  *function = nullptr;
  static void* self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  const int newest = setting("FAKE_VERSION", 99990);
  for (const Version& row : kVersions) {
    const char* const known_as = setting("FAKE_SUFFIXES", 0) ? row.exported : row.base;
    if (std::strcmp(known_as, name) != 0 || row.since > version || row.since > newest) continue;
    if (row.per_thread && !(flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)) continue;
    // Any version of dlsym would do; what matters is to bypass a preloaded dlsym.
    using Dlsym = void* (*)(void*, const char*);
    static const auto real = reinterpret_cast<Dlsym>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34"));
    if (void* found = real(self, row.exported)) *function = found;
  }
  // An old driver answers a request for a later version with the newest it has.
  const char* revised = std::getenv("FAKE_NEW_REVISION");
  if (revised && std::strcmp(name, revised) == 0 && version >= 99000)
    *function = reinterpret_cast<void*>(&fake_new_revision);
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
}  // namespace

FAKE(cuGetProcAddress)(const char* name, void** function, int version, cuuint64_t flags) {
  count("cuGetProcAddress");
  return look_up(name, function, version, flags);
}
FAKE(cuGetProcAddress_v2)(const char* name, void** function, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult* status) {
  count("cuGetProcAddress_v2");
  const CUresult result = look_up(name, function, version, flags);
  if (status) {
    *status =
        result == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return result;
}

#include "fake_rest.inc"
