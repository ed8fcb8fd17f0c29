// cuGetErrorName and cuGetErrorString.
#include "api.h"

namespace {

struct Row {
  CUresult value;
  const char* name;
  const char* text;
};

#define ROW(name, text) {name, #name, text},
// clang-format off
constexpr Row kRows[] = {
    ROW(CUDA_SUCCESS, "no error")
    ROW(CUDA_ERROR_INVALID_VALUE, "invalid argument")
    ROW(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")
    ROW(CUDA_ERROR_NOT_INITIALIZED, "initialization error")
    ROW(CUDA_ERROR_DEINITIALIZED, "driver shutting down")
    ROW(CUDA_ERROR_PROFILER_DISABLED, "profiler disabled while using external profiling tool")
    ROW(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library")
    ROW(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable")
    ROW(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")
    ROW(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")
    ROW(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid")
    ROW(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")
    ROW(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed")
    ROW(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed")
    ROW(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped")
    ROW(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device")
    ROW(CUDA_ERROR_NOT_MAPPED, "resource not mapped")
    ROW(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture")
    ROW(CUDA_ERROR_CONTEXT_ALREADY_IN_USE,
        "exclusive-thread device already in use by another thread")
    ROW(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
        "peer access is not supported between these two devices")
    ROW(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed")
    ROW(CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid")
    ROW(CUDA_ERROR_FILE_NOT_FOUND, "file not found")
    ROW(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, "shared object initialization failed")
    ROW(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS")
    ROW(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")
    ROW(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state")
    ROW(CUDA_ERROR_NOT_FOUND, "named symbol not found")
    ROW(CUDA_ERROR_NOT_READY, "device not ready")
    ROW(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")
    ROW(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch")
    ROW(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated")
    ROW(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "cannot set while device is active in this process")
    ROW(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")
    ROW(CUDA_ERROR_ASSERT, "device-side assert triggered")
    ROW(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
        "part or all of the requested memory range is already mapped")
    ROW(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
        "pointer does not correspond to a registered memory region")
    ROW(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure")
    ROW(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch")
    ROW(CUDA_ERROR_NOT_PERMITTED, "operation not permitted")
    ROW(CUDA_ERROR_NOT_SUPPORTED, "operation not supported")
    ROW(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized")
    ROW(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing")
    ROW(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        "operation failed due to a previous error during capture")
    ROW(CUDA_ERROR_STREAM_CAPTURE_MERGE,
        "operation would result in a merge of separate capture sequences")
    ROW(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began")
    ROW(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work")
    ROW(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
        "dependency created on uncaptured work in another stream")
    ROW(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
        "operation would make the legacy stream depend on a capturing blocking stream")
    ROW(CUDA_ERROR_CAPTURED_EVENT,
        "operation not permitted on an event last recorded in a capturing stream")
    ROW(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
        "attempt to terminate a thread-local capture sequence from another thread")
    ROW(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
        "the graph update was not performed because it included changes which violated "
        "constraints specific to instantiated graph update")
    ROW(CUDA_ERROR_LOSSY_QUERY, "the query would discard important information")
    ROW(CUDA_ERROR_TIMEOUT, "wait operation timed out")
    ROW(CUDA_ERROR_INVALID_RESOURCE_TYPE, "invalid resource type")
    ROW(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, "invalid resource configuration")
    ROW(CUDA_ERROR_PROFILER_NOT_INITIALIZED,
        "profiler not initialized: call cudaProfilerInitialize()")
    ROW(CUDA_ERROR_PROFILER_ALREADY_STARTED, "profiler already started")
    ROW(CUDA_ERROR_PROFILER_ALREADY_STOPPED, "profiler already stopped")
    ROW(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER,
        "API call is not supported in the installed CUDA driver")
    ROW(CUDA_ERROR_DEVICE_NOT_LICENSED, "device doesn't have valid Grid license")
    ROW(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, "context already current")
    ROW(CUDA_ERROR_ARRAY_IS_MAPPED, "array is mapped")
    ROW(CUDA_ERROR_ALREADY_ACQUIRED, "resource already acquired")
    ROW(CUDA_ERROR_NOT_MAPPED_AS_ARRAY, "resource not mapped as array")
    ROW(CUDA_ERROR_NOT_MAPPED_AS_POINTER, "resource not mapped as pointer")
    ROW(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered")
    ROW(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT, "invalid OpenGL or DirectX context")
    ROW(CUDA_ERROR_NVLINK_UNCORRECTABLE, "uncorrectable NVLink error detected during the execution")
    ROW(CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "PTX JIT compiler library not found")
    ROW(CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        "the provided PTX was compiled with an unsupported toolchain.")
    ROW(CUDA_ERROR_JIT_COMPILATION_DISABLED, "PTX JIT compilation was disabled")
    ROW(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "the provided execution affinity is not supported")
    ROW(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC,
        "the provided PTX contains unsupported call to cudaDeviceSynchronize")
    ROW(CUDA_ERROR_CONTAINED, "Invalid access of peer GPU memory over nvlink or a hardware error")
    ROW(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, "shared object symbol not found")
    ROW(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING, "launch uses incompatible texturing mode")
    ROW(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled")
    ROW(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled")
    ROW(CUDA_ERROR_TOO_MANY_PEERS, "peer mapping resources exhausted")
    ROW(CUDA_ERROR_HARDWARE_STACK_ERROR, "hardware stack error")
    ROW(CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered")
    ROW(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address")
    ROW(CUDA_ERROR_INVALID_ADDRESS_SPACE, "operation not supported on global/shared address space")
    ROW(CUDA_ERROR_INVALID_PC, "invalid program counter")
    ROW(CUDA_ERROR_TENSOR_MEMORY_LEAK, "tensor memory not completely freed")
    ROW(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
        "system has unsupported display driver / cuda driver combination")
    ROW(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
        "forward compatibility was attempted on non supported HW")
    ROW(CUDA_ERROR_MPS_CONNECTION_FAILED,
        "MPS client failed to connect to the MPS control daemon or the MPS server")
    ROW(CUDA_ERROR_MPS_RPC_FAILURE,
        "the remote procedural call between the MPS server and the MPS client failed")
    ROW(CUDA_ERROR_MPS_SERVER_NOT_READY,
        "MPS server is not ready to accept new MPS client requests")
    ROW(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
        "the hardware resources required to create MPS client have been exhausted")
    ROW(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED,
        "the hardware resources required to support device connections have been exhausted")
    ROW(CUDA_ERROR_MPS_CLIENT_TERMINATED, "the MPS client has been terminated by the server")
    ROW(CUDA_ERROR_CDP_NOT_SUPPORTED,
        "the module uses CUDA Dynamic Parallelism, which is not supported")
    ROW(CUDA_ERROR_CDP_VERSION_MISMATCH,
        "the module uses another version of CUDA Dynamic Parallelism than the device")
    ROW(CUDA_ERROR_EXTERNAL_DEVICE,
        "an async error has occurred in external entity outside of CUDA")
    ROW(CUDA_ERROR_INVALID_CLUSTER_SIZE,
        "a kernel launch error has occurred due to cluster misconfiguration")
    ROW(CUDA_ERROR_FUNCTION_NOT_LOADED, "the function handle is not loaded")
    ROW(CUDA_ERROR_KEY_ROTATION, "an error happened during the key rotation")
#if CUDA_VERSION >= 13010
    ROW(CUDA_ERROR_STREAM_DETACHED, "operation not permitted on a detached stream")
#endif
#if CUDA_VERSION >= 13050
    ROW(CUDA_ERROR_MULTICAST_RESOURCE_FULL, "multicast resources are exhausted")
    ROW(CUDA_ERROR_INSUFFICIENT_LOADER_VERSION, "the loader is older than the code needs")
    ROW(CUDA_ERROR_GRAPH_RECAPTURE_FAILURE, "the graph could not be captured anew")
    ROW(CUDA_ERROR_FABRIC_NOT_READY, "the fabric is not ready")
#endif
    ROW(CUDA_ERROR_UNKNOWN, "unknown error")
};
// clang-format on
#undef ROW

constexpr bool has_doubles() {
  for (const Row& row : kRows) {
    for (const Row* other = kRows; other != &row; ++other) {
      if (other->value == row.value) return true;
    }
  }
  return false;
}
static_assert(!has_doubles(), "the second row of an error would never be found");

const Row* find(CUresult error) {
  for (const Row& row : kRows) {
    if (row.value == error) return &row;
  }
  return nullptr;
}

}  // namespace

SOFTGPU_API cuGetErrorName(CUresult error, const char** name) {
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  const Row* row = find(error);
  *name = row ? row->name : nullptr;
  return row ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SOFTGPU_API cuGetErrorString(CUresult error, const char** text) {
  if (!text) return CUDA_ERROR_INVALID_VALUE;
  const Row* row = find(error);
  *text = row ? row->text : nullptr;
  return row ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
