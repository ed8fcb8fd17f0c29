// Copies in batches, and copies with attributes.
#include <utility>
#include <vector>

#include "array.h"
#include "batch.h"
#include "capture.h"
#include "copy.h"

namespace softgpu {
namespace {

struct Prepared {
  std::vector<Work> works;
  bool waits = false;  // the call returns only when they have ended
};

CUresult check(CUmemcpySrcAccessOrder order, unsigned flags) {
  switch (order) {
    case CU_MEMCPY_SRC_ACCESS_ORDER_STREAM:
    case CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL:
    case CU_MEMCPY_SRC_ACCESS_ORDER_ANY: break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  constexpr unsigned kKnown = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
  return (flags & ~kKnown) != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// All bytes are in one allocation, or the first one is in none.
bool reaches(Runtime& rt, CUdeviceptr pointer, size_t bytes) {
  return bytes <= UINTPTR_MAX - pointer &&
         (find_range(rt, pointer, bytes) || !find_range(rt, pointer, 1));
}

// With DURING_API_CALL, the source may change after the call. So host memory is staged now, and a
// copy from device memory must end before the call returns.
CUresult add(Work work, const CopySides& sides, CUmemcpySrcAccessOrder order, Prepared* prepared) {
  const bool now = order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  if (now && sides.source != Side::kDevice) {
    if (const CUresult bad = stage(&work)) return bad;
  }
  prepared->waits |= sides.destination == Side::kPageable || (now && sides.source == Side::kDevice);
  prepared->works.push_back(std::move(work));
  return CUDA_SUCCESS;
}

CUresult prepare(Runtime& rt, CUdeviceptr to, CUdeviceptr from, size_t bytes,
                 CUmemcpySrcAccessOrder order, Prepared* prepared) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (!to || !from || !reaches(rt, to, bytes) || !reaches(rt, from, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Rows rows = line(from_device(from), to_device(to), bytes);
  Side source, destination;
  side_of(rt, rows.source, bytes, false, &source);
  side_of(rt, rows.destination, bytes, false, &destination);
  return add(copy_work(rows, source, destination), {source, destination}, order, prepared);
}

// One end of a three-dimensional copy. `element` is the bytes per element, `extent` is in elements.
struct End {
  CUmemorytype type;
  CUdeviceptr address;
  CUarray array;
  CUoffset3D offset;
  size_t pitch, height;
};

bool describe(const CUmemcpy3DOperand& operand, const CUextent3D& extent, size_t element,
              End* end) {
  *end = {};
  if (operand.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    *end = {CU_MEMORYTYPE_ARRAY, 0, operand.op.array.array, operand.op.array.offset, 0, 0};
    return !__builtin_mul_overflow(end->offset.x, element, &end->offset.x);
  }
  if (operand.type != CU_MEMCPY_OPERAND_TYPE_POINTER) return false;
  const auto& at = operand.op.ptr;
  const size_t row = at.rowLength != 0 ? at.rowLength : extent.width;
  end->type = CU_MEMORYTYPE_UNIFIED;
  end->address = at.ptr;
  end->height = at.layerHeight != 0 ? at.layerHeight : extent.height;
  return row >= extent.width && end->height >= extent.height &&
         !__builtin_mul_overflow(row, element, &end->pitch);
}

// The bytes per element; 0 if the arrays differ or a handle is not an array.
size_t element_of(Runtime& rt, const CUDA_MEMCPY3D_BATCH_OP& op) {
  size_t element = 0;
  for (const CUmemcpy3DOperand* operand : {&op.src, &op.dst}) {
    if (operand->type != CU_MEMCPY_OPERAND_TYPE_ARRAY) continue;
    const auto* array = checked<Array>(rt.arrays, operand->op.array.array);
    if (!array || (element != 0 && element != array->element_bytes)) return 0;
    element = array->element_bytes;
  }
  return element != 0 ? element : 1;  // without arrays, extents are in bytes
}

CUresult prepare(Runtime& rt, const CUDA_MEMCPY3D_BATCH_OP& op, Prepared* prepared) {
  if (const CUresult bad = check(op.srcAccessOrder, op.flags)) return bad;
  const size_t element = element_of(rt, op);
  End from, to;
  CUDA_MEMCPY3D box{};
  if (element == 0 || !describe(op.src, op.extent, element, &from) ||
      !describe(op.dst, op.extent, element, &to) ||
      __builtin_mul_overflow(op.extent.width, element, &box.WidthInBytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  box.Height = op.extent.height, box.Depth = op.extent.depth;
  box.srcMemoryType = from.type, box.dstMemoryType = to.type;
  box.srcDevice = from.address, box.dstDevice = to.address;
  box.srcArray = from.array, box.dstArray = to.array;
  box.srcXInBytes = from.offset.x, box.srcY = from.offset.y, box.srcZ = from.offset.z;
  box.dstXInBytes = to.offset.x, box.dstY = to.offset.y, box.dstZ = to.offset.z;
  box.srcPitch = from.pitch, box.dstPitch = to.pitch;
  box.srcHeight = from.height, box.dstHeight = to.height;
  Work work;
  CopySides sides;
  if (const CUresult bad = copy_work(rt, box, &work, &sides)) return bad;
  return add(std::move(work), sides, op.srcAccessOrder, prepared);
}

CUresult run(StreamCall& on, const Prepared& prepared) {
  // The copies are refused, but the capture itself goes on.
  if (on.stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Context* context = on.stream->context;
  uint64_t last = 0;
  for (const Work& work : prepared.works) {
    if (const CUresult bad = on.enqueue(work, &last)) return bad;
  }
  if (!prepared.waits) return CUDA_SUCCESS;
  on.call.rt.wait_for_ops(on.call.lock, {last});
  return on.call.rt.life == Life::kReady ? context->error : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

// `failed` is the index of the copy that caused the error; SIZE_MAX if none did.
CUresult copy_batch(const CUdeviceptr* to, const CUdeviceptr* from, const size_t* bytes,
                    size_t count, const CUmemcpyAttributes* attributes, const size_t* firsts,
                    size_t settings, CUstream stream, size_t* failed) {
  *failed = SIZE_MAX;
  StreamCall on;
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  if (on.stream->legacy || !to || !from || !bytes || !attributes ||
      !settings_cover(firsts, settings, count)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t k = 0; k < settings; ++k) {
    if (const CUresult bad = check(attributes[k].srcAccessOrder, attributes[k].flags)) return bad;
  }
  Prepared prepared;
  for (size_t i = 0, k = 0; i < count; ++i) {
    if (k + 1 < settings && firsts[k + 1] == i) ++k;
    const CUresult bad =
        prepare(on.call.rt, to[i], from[i], bytes[i], attributes[k].srcAccessOrder, &prepared);
    if (!bad) continue;
    *failed = i;
    return bad;
  }
  return run(on, prepared);
}

CUresult copy_boxes(const CUDA_MEMCPY3D_BATCH_OP* ops, size_t count, unsigned long long flags,
                    CUstream stream, size_t* failed) {
  *failed = SIZE_MAX;
  StreamCall on;
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  if (on.stream->legacy || !ops || count == 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Prepared prepared;
  for (size_t i = 0; i < count; ++i) {
    const CUresult bad = prepare(on.call.rt, ops[i], &prepared);
    if (!bad) continue;
    *failed = i;
    return bad;
  }
  return run(on, prepared);
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                                  CUmemcpyAttributes* attributes, size_t* firsts, size_t settings,
                                  CUstream stream) {
  size_t unused;
  return copy_batch(to, from, bytes, count, attributes, firsts, settings, stream, &unused);
}

SOFTGPU_API cuMemcpyBatchAsync(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                               CUmemcpyAttributes* attributes, size_t* firsts, size_t settings,
                               size_t* failed, CUstream stream) {
  size_t unused;
  return copy_batch(to, from, bytes, count, attributes, firsts, settings, stream,
                    failed ? failed : &unused);
}

SOFTGPU_API cuMemcpy3DBatchAsync_v2(size_t count, CUDA_MEMCPY3D_BATCH_OP* ops,
                                    unsigned long long flags, CUstream stream) {
  size_t unused;
  return copy_boxes(ops, count, flags, stream, &unused);
}

SOFTGPU_API cuMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP* ops, size_t* failed,
                                 unsigned long long flags, CUstream stream) {
  size_t unused;
  return copy_boxes(ops, count, flags, stream, failed ? failed : &unused);
}

#if CUDA_VERSION >= 13020
SOFTGPU_API cuMemcpy3DWithAttributesAsync(CUDA_MEMCPY3D_BATCH_OP* op, unsigned long long flags,
                                          CUstream stream) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  if (on.stream->legacy || !op || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  Prepared prepared;
  const CUresult bad = prepare(on.call.rt, *op, &prepared);
  return bad ? bad : run(on, prepared);
}

SOFTGPU_API cuMemcpyWithAttributesAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                        CUmemcpyAttributes* attributes, CUstream stream) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  if (on.stream->legacy || !attributes) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check(attributes->srcAccessOrder, attributes->flags)) return bad;
  Prepared prepared;
  const CUresult bad = prepare(on.call.rt, to, from, bytes, attributes->srcAccessOrder, &prepared);
  return bad ? bad : run(on, prepared);
}
#endif
