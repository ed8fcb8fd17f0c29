// Copies and memsets as nodes describe them, to Work and back.
#include "api.h"
#include "execute.h"
#include "work.h"

namespace softgpu {
namespace {

struct Operand {
  CUmemorytype type;
  uintptr_t base;
  size_t x, y, z, lod, pitch, height;
};

Operand source_of(const CUDA_MEMCPY3D& c) {
  const auto base = c.srcMemoryType == CU_MEMORYTYPE_HOST
                        ? reinterpret_cast<uintptr_t>(c.srcHost)
                        : static_cast<uintptr_t>(c.srcDevice);
  return {c.srcMemoryType, base, c.srcXInBytes, c.srcY, c.srcZ, c.srcLOD, c.srcPitch, c.srcHeight};
}

Operand destination_of(const CUDA_MEMCPY3D& c) {
  const auto base = c.dstMemoryType == CU_MEMORYTYPE_HOST
                        ? reinterpret_cast<uintptr_t>(c.dstHost)
                        : static_cast<uintptr_t>(c.dstDevice);
  return {c.dstMemoryType, base, c.dstXInBytes, c.dstY, c.dstZ, c.dstLOD, c.dstPitch, c.dstHeight};
}

// Where the copy begins; fills in what may be left out.
CUresult place(Runtime& rt, Operand* operand, const CUDA_MEMCPY3D& c, uintptr_t* begin,
               bool* on_device) {
  if (operand->type == CU_MEMORYTYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
  if (operand->type < CU_MEMORYTYPE_HOST || operand->type > CU_MEMORYTYPE_UNIFIED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!operand->base || operand->lod != 0) return CUDA_ERROR_INVALID_VALUE;
  if (operand->pitch == 0) operand->pitch = c.WidthInBytes + operand->x;
  if (operand->height == 0) operand->height = c.Height + operand->y;
  if (operand->pitch < c.WidthInBytes + operand->x || operand->height < c.Height + operand->y) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const size_t row = operand->z * operand->height + operand->y;
  *begin = operand->base + row * operand->pitch + operand->x;
  const size_t rows = (c.Depth - 1) * operand->height + c.Height;
  const Range* range = find_range(rt, *begin, (rows - 1) * operand->pitch + c.WidthInBytes);
  if (!range && operand->type == CU_MEMORYTYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  *on_device = range && range->kind != RangeKind::kHost && range->kind != RangeKind::kRegistered;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult copy_work(Runtime& rt, const CUDA_MEMCPY3D& c, std::vector<Work>* slices) {
  if (c.WidthInBytes == 0 || c.Height == 0 || c.Depth == 0) return CUDA_ERROR_INVALID_VALUE;
  Operand source = source_of(c), destination = destination_of(c);
  uintptr_t from, to;
  bool from_device = false, to_device = false;
  if (const CUresult bad = place(rt, &source, c, &from, &from_device)) return bad;
  if (const CUresult bad = place(rt, &destination, c, &to, &to_device)) return bad;
  Work work;
  work.kind = from_device == to_device ? OpKind::kCopyDtoD
              : to_device              ? OpKind::kCopyHtoD
                                       : OpKind::kCopyDtoH;
  work.body = run_copy;
  work.bytes = c.WidthInBytes;
  work.source_pitch = source.pitch;
  work.destination_pitch = destination.pitch;
  // Work has rows at one distance from each other: slices with gaps between them are copied singly.
  const bool gapless = source.height == c.Height && destination.height == c.Height;
  work.height = gapless ? c.Height * c.Depth : c.Height;
  for (size_t z = 0; z < (gapless ? 1 : c.Depth); ++z) {
    work.source = reinterpret_cast<const void*>(from + z * source.height * source.pitch);
    work.destination = reinterpret_cast<void*>(to + z * destination.height * destination.pitch);
    slices->push_back(work);
  }
  return CUDA_SUCCESS;
}

CUresult memset_work(Runtime& rt, const CUDA_MEMSET_NODE_PARAMS& set, Work* work) {
  const unsigned element = set.elementSize;
  if ((element != 1 && element != 2 && element != 4) || set.width == 0 || set.height == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const size_t bytes = set.width * element;
  const size_t pitch = set.height == 1 ? bytes : set.pitch;
  if (pitch < bytes || set.dst % element != 0 || pitch % element != 0 ||
      !find_range(rt, set.dst, (set.height - 1) * pitch + bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  work->kind = OpKind::kMemset;
  work->body = run_memset;
  work->destination = reinterpret_cast<void*>(set.dst);
  work->destination_pitch = pitch;
  work->bytes = bytes;
  work->height = set.height;
  work->value = set.value;
  work->width_or_flags = element;
  return CUDA_SUCCESS;
}

CUDA_MEMCPY3D describe_copy(const Work& work) {
  CUDA_MEMCPY3D c{};
  const bool from_host = work.kind == OpKind::kCopyHtoD;
  const bool to_host = work.kind == OpKind::kCopyDtoH;
  c.srcMemoryType = from_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  c.dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  if (from_host) {
    c.srcHost = work.source;
  } else {
    c.srcDevice = reinterpret_cast<CUdeviceptr>(work.source);
  }
  if (to_host) {
    c.dstHost = work.destination;
  } else {
    c.dstDevice = reinterpret_cast<CUdeviceptr>(work.destination);
  }
  c.srcPitch = work.source_pitch;
  c.dstPitch = work.destination_pitch;
  c.WidthInBytes = work.bytes;
  c.Height = c.srcHeight = c.dstHeight = work.height;
  c.Depth = 1;
  return c;
}

CUDA_MEMSET_NODE_PARAMS describe_memset(const Work& work) {
  CUDA_MEMSET_NODE_PARAMS set{};
  set.dst = reinterpret_cast<CUdeviceptr>(work.destination);
  set.pitch = work.destination_pitch;
  set.value = static_cast<unsigned>(work.value);
  set.elementSize = work.width_or_flags;
  set.width = work.bytes / work.width_or_flags;
  set.height = work.height;
  return set;
}

}  // namespace softgpu
