// Copies of boxes: in two and three dimensions, and to and from arrays. All become one
// CUDA_MEMCPY3D, which graph_copy.cpp turns into work.
#include <cstring>

#include "api.h"
#include "array.h"
#include "copy.h"
#include "work.h"

namespace softgpu {
namespace {

// Between device memory no call waits, whatever its name, unless the memory requires it.
CUresult copy_box(const CUDA_MEMCPY3D& box, CUstream handle, bool asynchronous) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(handle)) return bad;
  if (!asynchronous) {
    if (const CUresult bad = on.refuse_blocking()) return bad;
  }
  if (box.WidthInBytes == 0 || box.Height == 0 || box.Depth == 0) return CUDA_SUCCESS;
  Work work;
  CopySides sides;
  if (const CUresult bad = copy_work(on.call.rt, box, &work, &sides)) return bad;
  const bool inside = sides.source == Side::kDevice && sides.destination == Side::kDevice &&
                      !synchronizes(on.call.rt, reinterpret_cast<CUdeviceptr>(work.source)) &&
                      !synchronizes(on.call.rt, reinterpret_cast<CUdeviceptr>(work.destination));
  return enqueue_copy(on, work, sides, asynchronous || inside);
}

CUresult copy_2d(const CUDA_MEMCPY2D* c, CUstream stream, bool asynchronous) {
  if (!c) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D box{};
  box.srcXInBytes = c->srcXInBytes, box.dstXInBytes = c->dstXInBytes;
  box.srcY = c->srcY, box.dstY = c->dstY;
  box.srcMemoryType = c->srcMemoryType, box.dstMemoryType = c->dstMemoryType;
  box.srcHost = c->srcHost, box.dstHost = c->dstHost;
  box.srcDevice = c->srcDevice, box.dstDevice = c->dstDevice;
  box.srcArray = c->srcArray, box.dstArray = c->dstArray;
  box.srcPitch = c->srcPitch, box.dstPitch = c->dstPitch;
  box.WidthInBytes = c->WidthInBytes, box.Height = c->Height, box.Depth = 1;
  return copy_box(box, stream, asynchronous);
}

CUresult copy_3d(const CUDA_MEMCPY3D* c, CUstream stream, bool asynchronous) {
  return c ? copy_box(*c, stream, asynchronous) : CUDA_ERROR_INVALID_VALUE;
}

// Addresses are unified, so the contexts add nothing to the operands, but they must be alive.
CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER* c, CUstream stream, bool asynchronous) {
  if (!c) return CUDA_ERROR_INVALID_VALUE;
  {
    Call call(Call::kContext);
    if (call.error) return call.error;
    const auto alive = [&](CUmemorytype type, CUcontext context) {
      return type == CU_MEMORYTYPE_ARRAY || checked<Context>(call.rt.contexts, context);
    };
    if (!alive(c->srcMemoryType, c->srcContext) || !alive(c->dstMemoryType, c->dstContext)) {
      return CUDA_ERROR_INVALID_CONTEXT;
    }
  }
  CUDA_MEMCPY3D box;
  static_assert(sizeof box == sizeof *c, "the contexts are where the other has reserved words");
  memcpy(&box, c, sizeof box);
  box.reserved0 = box.reserved1 = nullptr;
  return copy_box(box, stream, asynchronous);
}

// A run of bytes in memory or in a one-dimensional array.
struct Run {
  CUmemorytype type;
  CUdeviceptr address;  // also of host memory
  CUarray array;
  size_t offset;
};
Run in_array(CUarray array, size_t offset) { return {CU_MEMORYTYPE_ARRAY, 0, array, offset}; }
Run on_device(CUdeviceptr at) { return {CU_MEMORYTYPE_DEVICE, at, nullptr, 0}; }
Run on_host(const void* at) {
  return {CU_MEMORYTYPE_HOST, reinterpret_cast<CUdeviceptr>(at), nullptr, 0};
}

CUresult check_run(const Run& run, size_t bytes) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  const auto* array = checked<Array>(call.rt.arrays, run.array);
  if (run.type != CU_MEMORYTYPE_ARRAY) return CUDA_SUCCESS;
  const bool line = array && array->rows() == 1 && array->slices() == 1;
  return line && bytes % array->element_bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult copy_run(const Run& to, const Run& from, size_t bytes, CUstream stream,
                  bool asynchronous) {
  for (const Run* run : {&to, &from}) {
    if (const CUresult bad = check_run(*run, bytes)) return bad;
  }
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = from.type, box.dstMemoryType = to.type;
  box.srcArray = from.array, box.dstArray = to.array;
  box.srcXInBytes = from.offset, box.dstXInBytes = to.offset;
  box.srcDevice = from.address, box.dstDevice = to.address;
  box.srcHost = reinterpret_cast<const void*>(from.address);
  box.dstHost = reinterpret_cast<void*>(to.address);
  box.WidthInBytes = bytes, box.Height = box.Depth = 1;
  return copy_box(box, stream, asynchronous);
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuMemcpy2D_v2(const CUDA_MEMCPY2D* c) { return copy_2d(c, nullptr, false); }
SOFTGPU_API cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* c) { return copy_2d(c, nullptr, false); }
SOFTGPU_API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* c, CUstream stream) {
  return copy_2d(c, stream, true);
}
SOFTGPU_API cuMemcpy3D_v2(const CUDA_MEMCPY3D* c) { return copy_3d(c, nullptr, false); }
SOFTGPU_API cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* c, CUstream stream) {
  return copy_3d(c, stream, true);
}
SOFTGPU_API cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* c) { return copy_3d_peer(c, nullptr, false); }
SOFTGPU_API cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* c, CUstream stream) {
  return copy_3d_peer(c, stream, true);
}

SOFTGPU_API cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                            size_t bytes) {
  return copy_run(in_array(to, to_offset), in_array(from, from_offset), bytes, nullptr, false);
}
SOFTGPU_API cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {
  return copy_run(on_device(to), in_array(from, offset), bytes, nullptr, false);
}
SOFTGPU_API cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {
  return copy_run(in_array(to, offset), on_device(from), bytes, nullptr, false);
}
SOFTGPU_API cuMemcpyAtoH_v2(void* to, CUarray from, size_t offset, size_t bytes) {
  return copy_run(on_host(to), in_array(from, offset), bytes, nullptr, false);
}
SOFTGPU_API cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t offset, size_t bytes,
                                 CUstream stream) {
  return copy_run(on_host(to), in_array(from, offset), bytes, stream, true);
}
SOFTGPU_API cuMemcpyHtoA_v2(CUarray to, size_t offset, const void* from, size_t bytes) {
  return copy_run(in_array(to, offset), on_host(from), bytes, nullptr, false);
}
SOFTGPU_API cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void* from, size_t bytes,
                                 CUstream stream) {
  return copy_run(in_array(to, offset), on_host(from), bytes, stream, true);
}
