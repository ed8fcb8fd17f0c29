#include "array.h"

#include <sys/mman.h>

#include "api.h"
#include "array_shape.h"
#include "green_context.h"
#include "memory.h"

namespace softgpu {
namespace {

CUresult allocate(Call& call, size_t bytes, ArrayStorage* out) {
  uint64_t allocation = 0;
  const CUresult bad =
      reserve_memory(call, bytes, call.context->device, proto::MemKind::kLinear, &allocation);
  if (bad) return bad;
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) {
    call.rt.post(proto::Type::kMemRelease, proto::MemRelease{{}, allocation});
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = {static_cast<char*>(pages), bytes, allocation};
  return CUDA_SUCCESS;
}

void release(Runtime& rt, const ArrayStorage& storage) {
  munmap(storage.data, storage.bytes);
  rt.post(proto::Type::kMemRelease, proto::MemRelease{{}, storage.allocation});
}

void drop(Runtime& rt, Array* array) {
  rt.arrays.erase(array);
  release(rt, array->own);
  delete array;
}

void drop(Runtime& rt, MipmappedArray* mipmapped) {
  for (const auto& level : mipmapped->levels) rt.arrays.erase(level.get());
  rt.mipmapped_arrays.erase(mipmapped);
  release(rt, mipmapped->own);
  delete mipmapped;
}

CUresult create(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  Call call(Call::kUnsafe);
  if (call.error) return call.error;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Runtime& rt = call.rt;
  const CUresult bad = check_array_shape(rt.device.device[call.context->device], shape, false);
  if (bad) return bad;
  auto array =
      std::make_unique<Array>(Array{call.context, shape, array_element_bytes(shape), nullptr});
  if (const CUresult refused = allocate(call, array->bytes(), &array->own)) return refused;
  array->data = array->own.data;
  rt.arrays.insert(array.get());
  *out = reinterpret_cast<CUarray>(array.release());
  return CUDA_SUCCESS;
}

CUresult describe(CUarray handle, CUDA_ARRAY3D_DESCRIPTOR* out) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  const auto* array = checked<Array>(call.rt.arrays, handle);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = array->shape;
  return CUDA_SUCCESS;
}

// Like freeing memory, this waits for the work that may still use the array.
template <class T>
CUresult destroy(Call& call, const std::unordered_set<const void*>& known, T* object) {
  if (object->context->error) return object->context->error;
  call.rt.wait_for_ops(call.lock, last_ops_of(object->context));
  if (!known.count(object)) return CUDA_ERROR_INVALID_HANDLE;  // destroyed by two threads at once
  drop(call.rt, object);
  if (!call.rt.is_virtual()) call.rt.flush();
  return call.rt.life == Life::kReady ? CUDA_SUCCESS : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

// For queries about arrays made with a flag that this device does not support: no array is one.
CUresult refuse_query() {
  Call call(Call::kContext);
  return call.error ? call.error : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

void free_arrays_of(Runtime& rt, const Context* context) {
  std::vector<Array*> arrays;
  for (const void* known : rt.arrays) {
    auto* array = checked<Array>(rt.arrays, known);
    if (array->context == context && array->own.data) arrays.push_back(array);
  }
  for (Array* array : arrays) drop(rt, array);
  std::vector<MipmappedArray*> mipmapped;
  for (const void* known : rt.mipmapped_arrays) {
    auto* array = checked<MipmappedArray>(rt.mipmapped_arrays, known);
    if (array->context == context) mipmapped.push_back(array);
  }
  for (MipmappedArray* array : mipmapped) drop(rt, array);
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuArrayCreate_v2(CUarray* out, const CUDA_ARRAY_DESCRIPTOR* wanted) {
  if (!wanted) return CUDA_ERROR_INVALID_VALUE;
  return create(out, {wanted->Width, wanted->Height, 0, wanted->Format, wanted->NumChannels, 0});
}

SOFTGPU_API cuArray3DCreate_v2(CUarray* out, const CUDA_ARRAY3D_DESCRIPTOR* wanted) {
  return wanted ? create(out, *wanted) : CUDA_ERROR_INVALID_VALUE;
}

SOFTGPU_API cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray handle) {
  return describe(handle, out);
}

SOFTGPU_API cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* out, CUarray handle) {
  CUDA_ARRAY3D_DESCRIPTOR shape{};
  if (const CUresult bad = describe(handle, out ? &shape : nullptr)) return bad;
  *out = {shape.Width, shape.Height, shape.Format, shape.NumChannels};
  return CUDA_SUCCESS;
}

SOFTGPU_API cuArrayDestroy(CUarray handle) {
  Call call(Call::kUnsafe);
  if (call.error) return call.error;
  auto* array = checked<Array>(call.rt.arrays, handle);
  // A mipmap level is destroyed with its mipmapped array.
  if (!array || !array->own.data) return CUDA_ERROR_INVALID_HANDLE;
  return destroy(call, call.rt.arrays, array);
}

// Only arrays of several planes have planes to return, and those are not supported.
SOFTGPU_API cuArrayGetPlane(CUarray*, CUarray handle, unsigned int) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  return call.rt.arrays.count(handle) ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}

SOFTGPU_API cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUarray, CUdevice) {
  return refuse_query();
}
SOFTGPU_API cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS*, CUmipmappedArray,
                                                  CUdevice) {
  return refuse_query();
}
SOFTGPU_API cuArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUarray) {
  return refuse_query();
}
SOFTGPU_API cuMipmappedArrayGetSparseProperties(CUDA_ARRAY_SPARSE_PROPERTIES*, CUmipmappedArray) {
  return refuse_query();
}

SOFTGPU_API cuMipmappedArrayCreate(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* wanted,
                                   unsigned int count) {
  Call call(Call::kUnsafe);
  if (call.error) return call.error;
  if (!out || !wanted) return CUDA_ERROR_INVALID_VALUE;
  Runtime& rt = call.rt;
  const CUresult bad = check_array_shape(rt.device.device[call.context->device], *wanted, true);
  if (bad) return bad;
  auto mipmapped = std::make_unique<MipmappedArray>(MipmappedArray{call.context, {}, {}});
  const unsigned levels = std::clamp(count, 1U, most_mipmap_levels(*wanted));
  size_t bytes = 0;
  for (unsigned level = 0; level < levels; ++level) {
    mipmapped->levels.push_back(std::make_unique<Array>(Array{
        call.context, mipmap_level_shape(*wanted, level), array_element_bytes(*wanted), nullptr}));
    bytes += mipmapped->levels.back()->bytes();
  }
  if (const CUresult refused = allocate(call, bytes, &mipmapped->own)) return refused;
  char* data = mipmapped->own.data;
  for (const auto& level : mipmapped->levels) {
    level->data = data;
    data += level->bytes();
    rt.arrays.insert(level.get());
  }
  rt.mipmapped_arrays.insert(mipmapped.get());
  *out = reinterpret_cast<CUmipmappedArray>(mipmapped.release());
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMipmappedArrayGetLevel(CUarray* out, CUmipmappedArray handle, unsigned int level) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  const auto* mipmapped = checked<MipmappedArray>(call.rt.mipmapped_arrays, handle);
  if (!mipmapped) return CUDA_ERROR_INVALID_HANDLE;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (level >= mipmapped->levels.size()) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUarray>(mipmapped->levels[level].get());
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMipmappedArrayDestroy(CUmipmappedArray handle) {
  Call call(Call::kUnsafe);
  if (call.error) return call.error;
  auto* mipmapped = checked<MipmappedArray>(call.rt.mipmapped_arrays, handle);
  return mipmapped ? destroy(call, call.rt.mipmapped_arrays, mipmapped) : CUDA_ERROR_INVALID_HANDLE;
}
