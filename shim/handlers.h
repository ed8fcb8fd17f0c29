// What each intercepted call does, by the handler its line in calls.def names. Call is that call's
// tag (driver.h); a handler serves the plain and the per-thread flavour alike.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include "capture.h"
#include "driver.h"
#include "lookup.h"
#include "memory.h"
#include "observe.h"
#include "session.h"
#include "settings.h"
#include "slots.h"
#include "submit.h"

namespace tandem::shim::handlers {

template <class Call, class... A>
CUresult pass(A... arguments) {
  return Call::real(arguments...);
}

// ------------------------------------------------------------------------------- submissions

inline uint32_t saturated(uint64_t a, uint64_t b, uint64_t c) {
  const uint64_t product = a * b * c;
  return product > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(product);
}

template <class Call, class... Rest>
CUresult launch_kernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       CUstream stream, Rest... rest) {
  Submission submission;
  submission.stream = normalise(stream, Call::kPerThread);
  submission.object = reinterpret_cast<uint64_t>(function);
  submission.blocks = saturated(grid_x, grid_y, grid_z);
  submission.threads = saturated(block_x, block_y, block_z);
  submission.measured = true;
  return submit(submission, [&] {
    return Call::real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                      stream, rest...);
  });
}

inline bool is_programmatic(const CUlaunchConfig& config) {
  for (unsigned i = 0; i < config.numAttrs && config.attrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        attribute.value.programmaticStreamSerializationAllowed) {
      return true;
    }
  }
  return false;
}

template <class Call>
CUresult launch_kernel_ex(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  if (!config) return Call::real(config, function, parameters, extra);
  Submission submission;
  submission.stream = normalise(config->hStream, Call::kPerThread);
  submission.object = reinterpret_cast<uint64_t>(function);
  submission.blocks = saturated(config->gridDimX, config->gridDimY, config->gridDimZ);
  submission.threads = saturated(config->blockDimX, config->blockDimY, config->blockDimZ);
  submission.measured = true;
  submission.programmatic = is_programmatic(*config);
  return submit(submission, [&] { return Call::real(config, function, parameters, extra); });
}

template <class Call>
CUresult launch_graph(CUgraphExec graph, CUstream stream) {
  Submission submission;
  submission.kind = shm::RecordKind::kGraph;
  submission.stream = normalise(stream, Call::kPerThread);
  submission.object = reinterpret_cast<uint64_t>(graph);
  submission.measured = true;
  submission.alone = true;
  return submit(submission, [&] { return Call::real(graph, stream); });
}

// ------------------------------------------------------------------------------ copies and sets

constexpr uint64_t direction_of(const char* name) {
  if (contains(name, "HtoD") || contains(name, "HtoA")) return 1;
  if (contains(name, "DtoH") || contains(name, "AtoH")) return 2;
  if (contains(name, "DtoD") || contains(name, "DtoA") || contains(name, "AtoD") ||
      contains(name, "AtoA")) {
    return 3;
  }
  return 0;
}

inline uint64_t bytes_of(const CUDA_MEMCPY2D* copy) {
  return copy ? copy->WidthInBytes * copy->Height : 0;
}
inline uint64_t bytes_of(const CUDA_MEMCPY3D* copy) {
  return copy ? copy->WidthInBytes * copy->Height * copy->Depth : 0;
}
// Linear copies: of all their arguments the last size_t is the byte count.
template <class... A>
uint64_t bytes_of(A... arguments) {
  uint64_t bytes = 0;
  const auto look = [&bytes](auto argument) {
    if constexpr (std::is_same_v<decltype(argument), size_t>) bytes = argument;
  };
  (look(arguments), ...);
  return bytes;
}

template <class A>
uint64_t object_of(A argument) {
  if constexpr (std::is_pointer_v<A>) return reinterpret_cast<uint64_t>(argument);
  else return argument;
}

template <class Call, class First, class... Rest>
Submission describe_copy(CUstream stream, First first, Rest... rest) {
  Submission submission;
  submission.kind = shm::RecordKind::kCopy;
  submission.stream = normalise(stream, Call::kPerThread);
  submission.object = object_of(first);
  submission.direction = direction_of(Call::kName);
  submission.bytes = bytes_of(first, rest...);
  submission.est_ns = copy_estimate_ns(submission.bytes, submission.direction);
  return submission;
}

// The stream is the last argument.
template <class... A>
CUstream stream_in(A... arguments) {
  return std::get<sizeof...(A) - 1>(std::tuple<A...>(arguments...));
}

template <class Call, class... A>
CUresult copy_async(A... arguments) {
  const Submission submission = describe_copy<Call>(stream_in(arguments...), arguments...);
  return submit(submission, [&] { return Call::real(arguments...); });
}

template <class Call, class... A>
CUresult copy_now(A... arguments) {
  Submission submission = describe_copy<Call>(nullptr, arguments...);
  submission.blocks_caller = true;
  return submit(submission, [&] { return Call::real(arguments...); });
}

constexpr uint64_t element_bytes(const char* name) {
  return contains(name, "D32") ? 4 : contains(name, "D16") ? 2 : 1;
}

template <class Call>
Submission describe_set(CUstream stream, CUdeviceptr address, uint64_t elements) {
  Submission submission;
  submission.kind = shm::RecordKind::kMemset;
  submission.stream = normalise(stream, Call::kPerThread);
  submission.object = address;
  submission.bytes = elements * element_bytes(Call::kName);
  submission.direction = 3;
  submission.est_ns = copy_estimate_ns(submission.bytes, 3);
  return submission;
}

// A memset without a stream does not block the caller: it is work of the default stream.
template <class Call, class Value>
CUresult set_now(CUdeviceptr address, Value value, size_t count) {
  return submit(describe_set<Call>(nullptr, address, count),
                [&] { return Call::real(address, value, count); });
}
template <class Call, class Value>
CUresult set_now(CUdeviceptr address, size_t pitch, Value value, size_t width, size_t height) {
  return submit(describe_set<Call>(nullptr, address, width * height),
                [&] { return Call::real(address, pitch, value, width, height); });
}
template <class Call, class Value>
CUresult set_async(CUdeviceptr address, Value value, size_t count, CUstream stream) {
  return submit(describe_set<Call>(stream, address, count),
                [&] { return Call::real(address, value, count, stream); });
}
template <class Call, class Value>
CUresult set_async(CUdeviceptr address, size_t pitch, Value value, size_t width, size_t height,
                   CUstream stream) {
  return submit(describe_set<Call>(stream, address, width * height),
                [&] { return Call::real(address, pitch, value, width, height, stream); });
}

// ---------------------------------------------------------------------------------- memory

// The limit's answer is exactly CUDA_ERROR_OUT_OF_MEMORY: allocators retry on that and on no other.
template <class Real>
CUresult counted(CUdeviceptr* address, uint64_t bytes, Real real) {
  Channel* channel = managed_channel();
  if (!memory::reserve(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = real();
  if (result == CUDA_SUCCESS && address) {
    memory::remember(*address, bytes);
    if (channel) record_memory(*channel, shm::RecordKind::kAlloc, *address, bytes);
  } else {
    memory::give_back(bytes);
  }
  return result;
}

template <class Real>
CUresult uncounted(CUdeviceptr address, Real real) {
  Channel* channel = managed_channel();
  const uint64_t bytes = memory::forget(address);  // first: the driver may reuse the address at once
  const CUresult result = real();
  if (result != CUDA_SUCCESS) {
    if (bytes) memory::restore(address, bytes);
    return result;
  }
  memory::give_back(bytes);
  if (channel && bytes) record_memory(*channel, shm::RecordKind::kFree, address, bytes);
  return result;
}

template <class Call>
CUresult allocate(CUdeviceptr* address, size_t bytes) {
  return counted(address, bytes, [&] { return Call::real(address, bytes); });
}
template <class Call>
CUresult allocate_pitch(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                        unsigned element) {
  return counted(address, width * height,
                 [&] { return Call::real(address, pitch, width, height, element); });
}
template <class Call>
CUresult allocate_managed(CUdeviceptr* address, size_t bytes, unsigned flags) {
  return counted(address, bytes, [&] { return Call::real(address, bytes, flags); });
}
template <class Call, class... A>
CUresult allocate_async(CUdeviceptr* address, size_t bytes, A... rest) {
  const auto real = [&] { return Call::real(address, bytes, rest...); };
  // Inside a capture this makes a graph node, not memory.
  if (any_capture() && is_capturing(stream_in(rest...))) return real();
  return counted(address, bytes, real);
}
template <class Call>
CUresult release(CUdeviceptr address) {
  if (Channel* channel = managed_channel()) before_block(*channel);  // may wait for the device
  return uncounted(address, [&] { return Call::real(address); });
}
template <class Call>
CUresult release_async(CUdeviceptr address, CUstream stream) {
  const auto real = [&] { return Call::real(address, stream); };
  if (any_capture() && is_capturing(stream)) return real();
  return uncounted(address, real);
}
template <class Call>
CUresult memory_info(size_t* free_bytes, size_t* total_bytes) {
  managed_channel();
  const CUresult result = Call::real(free_bytes, total_bytes);
  if (result == CUDA_SUCCESS) memory::limit_view(free_bytes, total_bytes);
  return result;
}

// Asked before there is a context, too: then the limit is what `tandem run` agreed with the daemon.
template <class Call>
CUresult total_memory(size_t* bytes, CUdevice device) {
  managed_channel();
  const CUresult result = Call::real(bytes, device);
  if (result != CUDA_SUCCESS || !bytes) return result;
  if (g_session.load(std::memory_order_acquire) == SessionState::kFresh) {
    *bytes = std::min<uint64_t>(*bytes, agreed_limit(*bytes));
  } else {
    memory::limit_view(nullptr, bytes);
  }
  return result;
}

// ----------------------------------------------------------------------------- sync and order

template <class Call>
CUresult wait_stream(CUstream stream) {
  return observed_wait(reinterpret_cast<uint64_t>(stream), [&] { return Call::real(stream); });
}
template <class Call>
CUresult wait_event(CUevent event) {
  return observed_wait(reinterpret_cast<uint64_t>(event), [&] { return Call::real(event); });
}
template <class Call>
CUresult wait_context() {
  return observed_context_wait([] { return Call::real(); });
}
template <class Call>
CUresult query_stream(CUstream stream) {
  return observed_query([&] { return Call::real(stream); });
}
template <class Call>
CUresult query_event(CUevent event) {
  return observed_query([&] { return Call::real(event); });
}
template <class Call, class... A>
CUresult record_event(CUevent event, CUstream stream, A... rest) {
  return ordered(shm::RecordKind::kEventRecord, normalise(stream, Call::kPerThread),
                 reinterpret_cast<uint64_t>(event),
                 [&] { return Call::real(event, stream, rest...); });
}
template <class Call>
CUresult wait_for_event(CUstream stream, CUevent event, unsigned flags) {
  return ordered(shm::RecordKind::kEventWait, normalise(stream, Call::kPerThread),
                 reinterpret_cast<uint64_t>(event),
                 [&] { return Call::real(stream, event, flags); });
}
template <class Call>
CUresult host_function(CUstream stream, CUhostFn function, void* argument) {
  return ordered(shm::RecordKind::kHostFunc, normalise(stream, Call::kPerThread),
                 reinterpret_cast<uint64_t>(function),
                 [&] { return Call::real(stream, function, argument); });
}
template <class Call, class Where, class... A>
CUresult memory_operation(CUstream stream, Where where, A... rest) {
  return ordered(shm::RecordKind::kMemOp, normalise(stream, Call::kPerThread), uint64_t{where},
                 [&] { return Call::real(stream, where, rest...); });
}

// --------------------------------------------------------------------- captures, ends of things

template <class Call, class... A>
CUresult begin_capture(A... arguments) {
  const CUresult result = Call::real(arguments...);
  if (result == CUDA_SUCCESS) note_capture_begun();
  return result;
}
template <class Call>
CUresult end_capture(CUstream stream, CUgraph* graph) {
  const bool was_capturing = any_capture() && is_capturing(stream);
  const CUresult result = Call::real(stream, graph);
  if (was_capturing && !is_capturing(stream)) note_capture_ended();
  return result;
}
template <class Call>
CUresult destroy_stream(CUstream stream) {
  retire_stream(stream);
  return Call::real(stream);
}
template <class Call>
CUresult destroy_context(CUcontext context) {
  return destroying_context(context, [&] { return Call::real(context); });
}
template <class Call>
CUresult reset_device(CUdevice device) {
  return destroying_primary(device, [&] { return Call::real(device); });
}

// ---------------------------------------------------------------------------------- look-ups

inline void substitute(const char* base, void** function, int version, cuuint64_t flags) {
  if (!base || !function || !*function) return;
  const char* exported = exported_symbol_of(base, version, flags);
  if (void* wrapper = exported ? wrapper_of(exported) : nullptr) *function = wrapper;
}
template <class Call>
CUresult proc_address(const char* name, void** function, int version, cuuint64_t flags) {
  const CUresult result = Call::real(name, function, version, flags);
  if (result == CUDA_SUCCESS) substitute(name, function, version, flags);
  return result;
}
template <class Call>
CUresult proc_address_v2(const char* name, void** function, int version, cuuint64_t flags,
                         CUdriverProcAddressQueryResult* status) {
  const CUresult result = Call::real(name, function, version, flags, status);
  if (result == CUDA_SUCCESS) substitute(name, function, version, flags);
  return result;
}

}  // namespace tandem::shim::handlers
