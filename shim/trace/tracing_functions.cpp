#include "tracing_functions.h"

#include <cstring>

#include "driver.h"

namespace tandem::shim::tracing {
namespace {

// What is launched may be a CUkernel cast to a CUfunction.
CUkernel as_kernel(CUfunction function) { return reinterpret_cast<CUkernel>(function); }

bool parameter(CUfunction function, size_t index, size_t* offset, size_t* bytes) {
  if (g_driver.cuFuncGetParamInfo &&
      g_driver.cuFuncGetParamInfo(function, index, offset, bytes) == CUDA_SUCCESS) {
    return true;
  }
  return g_driver.cuKernelGetParamInfo &&
         g_driver.cuKernelGetParamInfo(as_kernel(function), index, offset, bytes) == CUDA_SUCCESS;
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
  while (note->count < kMaxParameters && parameter(function, note->count, &offset, &bytes)) {
    note->offset[note->count] = static_cast<uint32_t>(offset);
    note->bytes[note->count] = static_cast<uint32_t>(bytes);
    ++note->count;
  }
  note->has_more = note->count == kMaxParameters && parameter(function, note->count, &offset, &bytes);
}

shm::Record FunctionNotes::head_of(const FunctionNote& note, const char* name) {
  shm::Record record{};
  record.kind = static_cast<uint8_t>(shm::RecordKind::kFunction);
  record.grid_blocks = note.count;
  record.block_threads = static_cast<uint32_t>(strnlen(name, trace::kMaxText));
  return record;
}

}  // namespace tandem::shim::tracing
