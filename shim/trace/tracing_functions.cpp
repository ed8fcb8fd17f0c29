#include "tracing_functions.h"

#include <cstring>

#include "driver.h"

namespace tandem::shim::tracing {
namespace {

// A launched function may be a CUkernel cast to a CUfunction.
CUkernel as_kernel(CUfunction function) { return reinterpret_cast<CUkernel>(function); }

// CUDA_ERROR_INVALID_VALUE: there are not that many parameters.
CUresult parameter(CUfunction function, size_t index, size_t* offset, size_t* bytes) {
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  if (g_driver.cuFuncGetParamInfo)
    result = g_driver.cuFuncGetParamInfo(function, index, offset, bytes);
  if (result == CUDA_SUCCESS || !g_driver.cuKernelGetParamInfo) return result;
  const CUresult as_one = g_driver.cuKernelGetParamInfo(as_kernel(function), index, offset, bytes);
  return result == CUDA_ERROR_INVALID_VALUE && as_one != CUDA_SUCCESS ? result : as_one;
}

// CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE, in any order, up to CU_LAUNCH_PARAM_END.
struct Buffer {
  const char* begin = nullptr;
  size_t bytes = 0;
};
Buffer buffer_in(void* const* extra) {
  // There are two; an unterminated list must not be followed for ever.
  constexpr int kMostPairs = 8;
  Buffer buffer;
  for (int pair = 0; extra && *extra != CU_LAUNCH_PARAM_END && pair < kMostPairs; ++pair) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer.begin = static_cast<char*>(extra[1]);
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) buffer.bytes = *static_cast<size_t*>(extra[1]);
    extra += 2;
  }
  return buffer;
}

}  // namespace

const char* FunctionNotes::name_of(CUfunction function) {
  const char* name = nullptr;
  if (g_driver.cuFuncGetName && g_driver.cuFuncGetName(&name, function) == CUDA_SUCCESS && name)
    return name;
  if (g_driver.cuKernelGetName &&
      g_driver.cuKernelGetName(&name, as_kernel(function)) == CUDA_SUCCESS && name) {
    return name;
  }
  return "";
}

uint64_t FunctionNotes::hash_of(const char* name) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (; *name; ++name) hash = (hash ^ static_cast<unsigned char>(*name)) * 0x100000001b3u;
  return hash;
}

void FunctionNotes::ask(CUfunction function, FunctionNote* note) {
  *note = FunctionNote{};
  size_t offset = 0, bytes = 0;
  CUresult result = CUDA_SUCCESS;
  while ((result = parameter(function, note->count, &offset, &bytes)) == CUDA_SUCCESS &&
         note->count < kMaxParameters) {
    note->offset[note->count] = static_cast<uint32_t>(offset);
    note->bytes[note->count] = static_cast<uint32_t>(bytes);
    ++note->count;
  }
  note->has_more = result == CUDA_SUCCESS;
  note->is_known = note->has_more || result == CUDA_ERROR_INVALID_VALUE;
}

shm::Record FunctionNotes::head_of(const FunctionNote& note, const char* name) {
  shm::Record record{};
  record.kind = static_cast<uint8_t>(shm::RecordKind::kFunction);
  record.grid_blocks = note.count;
  record.block_threads = static_cast<uint32_t>(strnlen(name, trace::kMaxText));
  return record;
}

ParameterWords collect_parameters(const FunctionNote& note, void* const* parameters,
                                  void* const* extra, uint64_t* words, uint32_t room) {
  const Buffer buffer = parameters ? Buffer{} : buffer_in(extra);
  const auto place_of = [&](uint32_t i) -> const void* {
    if (parameters) return parameters[i];
    const bool inside = size_t{note.offset[i]} + note.bytes[i] <= buffer.bytes;
    return buffer.begin && inside ? buffer.begin + note.offset[i] : nullptr;
  };
  ParameterWords found;
  found.is_cut = note.has_more;
  for (uint32_t i = 0; i < note.count; ++i) {
    const uint32_t count = (note.bytes[i] + 7) / 8;
    const void* place = place_of(i);
    if (!place || count > room - found.count) return {found.count, true};
    if (count == 0) continue;
    words[found.count + count - 1] = 0;
    std::memcpy(words + found.count, place, note.bytes[i]);
    found.count += count;
  }
  return found;
}

}  // namespace tandem::shim::tracing
