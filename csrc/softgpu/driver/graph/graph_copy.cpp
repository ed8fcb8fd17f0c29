// Converts copies and memsets between node parameters and Work.
#include "api.h"
#include "array.h"
#include "execute.h"
#include "work.h"

namespace softgpu {
namespace {

constexpr size_t kMaxPitch = 2147483647;  // CU_DEVICE_ATTRIBUTE_MAX_PITCH

struct Operand {
  CUmemorytype type;
  uintptr_t base;
  CUarray array;
  size_t x, y, z, lod, pitch, height;
  const void* reserved;
};

Operand source_of(const CUDA_MEMCPY3D& c) {
  const auto base = c.srcMemoryType == CU_MEMORYTYPE_HOST ? reinterpret_cast<uintptr_t>(c.srcHost)
                                                          : static_cast<uintptr_t>(c.srcDevice);
  return {c.srcMemoryType, base,     c.srcArray, c.srcXInBytes, c.srcY,
          c.srcZ,          c.srcLOD, c.srcPitch, c.srcHeight,   c.reserved0};
}

Operand destination_of(const CUDA_MEMCPY3D& c) {
  const auto base = c.dstMemoryType == CU_MEMORYTYPE_HOST ? reinterpret_cast<uintptr_t>(c.dstHost)
                                                          : static_cast<uintptr_t>(c.dstDevice);
  return {c.dstMemoryType, base,     c.dstArray, c.dstXInBytes, c.dstY,
          c.dstZ,          c.dstLOD, c.dstPitch, c.dstHeight,   c.reserved1};
}

void set_source(CUDA_MEMCPY3D* c, const Operand& from) {
  c->srcMemoryType = from.type, c->srcArray = from.array;
  c->srcXInBytes = from.x, c->srcY = from.y, c->srcZ = from.z;
  c->srcPitch = from.pitch, c->srcHeight = from.height;
  if (from.type == CU_MEMORYTYPE_HOST) c->srcHost = reinterpret_cast<const void*>(from.base);
  else c->srcDevice = from.base;
}

void set_destination(CUDA_MEMCPY3D* c, const Operand& to) {
  c->dstMemoryType = to.type, c->dstArray = to.array;
  c->dstXInBytes = to.x, c->dstY = to.y, c->dstZ = to.z;
  c->dstPitch = to.pitch, c->dstHeight = to.height;
  if (to.type == CU_MEMORYTYPE_HOST) c->dstHost = reinterpret_cast<void*>(to.base);
  else c->dstDevice = to.base;
}

// One end of a copy, resolved.
struct Place {
  uintptr_t begin = 0;
  size_t pitch = 0, slice = 0;
  const Array* array = nullptr;
  Side side = Side::kPageable;
};

struct Extent {
  size_t bytes, height, depth;
};

bool fits(size_t offset, size_t count, size_t whole) {
  return offset <= whole && count <= whole - offset;
}

CUresult place_in_array(Runtime& rt, const Operand& operand, const Extent& box, Place* out) {
  const auto* array = checked<Array>(rt.arrays, operand.array);
  if (!array || operand.x % array->element_bytes != 0 || box.bytes % array->element_bytes != 0 ||
      !fits(operand.x, box.bytes, array->row_bytes()) ||
      !fits(operand.y, box.height, array->rows()) || !fits(operand.z, box.depth, array->slices())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  out->pitch = array->row_bytes();
  out->slice = array->slice_bytes();
  out->begin = reinterpret_cast<uintptr_t>(array->data) + operand.z * out->slice +
               operand.y * out->pitch + operand.x;
  out->array = array;
  out->side = Side::kDevice;
  return CUDA_SUCCESS;
}

// Computes a * b + c; returns false if it does not fit a size_t.
bool multiply_add(size_t a, size_t b, size_t c, size_t* out) {
  return !__builtin_mul_overflow(a, b, out) && !__builtin_add_overflow(*out, c, out);
}

// Finds where the copy begins, after filling in what may be omitted, and how far it extends.
bool lay_out(Operand operand, const Extent& box, Place* out, size_t* reach) {
  size_t width, rows, begin;
  if (__builtin_add_overflow(box.bytes, operand.x, &width) ||
      __builtin_add_overflow(box.height, operand.y, &rows)) {
    return false;
  }
  if (operand.height == 0 && box.depth > 1) return false;
  if (operand.pitch == 0) operand.pitch = width;
  if (operand.height == 0) operand.height = rows;
  if (operand.pitch < width || operand.height < rows || operand.pitch > kMaxPitch) return false;
  if (!multiply_add(operand.z, operand.height, operand.y, &begin) ||
      !multiply_add(begin, operand.pitch, operand.x, &begin) ||
      __builtin_add_overflow(begin, operand.base, &out->begin) ||
      !multiply_add(box.depth - 1, operand.height, box.height - 1, reach) ||
      !multiply_add(*reach, operand.pitch, box.bytes, reach) ||
      __builtin_add_overflow(out->begin, *reach, &begin)) {
    return false;
  }
  out->pitch = operand.pitch;
  // With a single slice the distance between slices is unused, so it may overflow.
  if (!multiply_add(operand.height, operand.pitch, 0, &out->slice)) out->slice = 0;
  return true;
}

CUresult place(Runtime& rt, const Operand& operand, const Extent& box, Place* out) {
  if (operand.lod != 0 || operand.reserved) return CUDA_ERROR_INVALID_VALUE;
  if (operand.type == CU_MEMORYTYPE_ARRAY) return place_in_array(rt, operand, box, out);
  if (operand.type < CU_MEMORYTYPE_HOST || operand.type > CU_MEMORYTYPE_UNIFIED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  size_t reach = 0;
  if (!operand.base || !lay_out(operand, box, out, &reach)) return CUDA_ERROR_INVALID_VALUE;
  const Range* range = find_range(rt, out->begin, reach);
  if (!range && operand.type == CU_MEMORYTYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  // A box that begins in memory of the driver and extends beyond it is invalid.
  if (!range && find_range(rt, out->begin, 1)) return CUDA_ERROR_INVALID_VALUE;
  if (!range) return CUDA_SUCCESS;
  const bool host = range->kind == RangeKind::kHost || range->kind == RangeKind::kRegistered;
  out->side = host ? Side::kPinned : Side::kDevice;
  return CUDA_SUCCESS;
}

// The inverse of place_in_array.
Operand within(const Array& array, const void* address) {
  const auto offset = static_cast<size_t>(static_cast<const char*>(address) - array.data);
  Operand out{};
  out.type = CU_MEMORYTYPE_ARRAY;
  out.array = reinterpret_cast<CUarray>(const_cast<Array*>(&array));
  out.x = offset % array.row_bytes();
  out.y = offset / array.row_bytes() % array.rows();
  out.z = offset / array.slice_bytes();
  return out;
}

// The inverse of lay_out. A copy of one slice need not give the distance between slices.
Operand laid_out(CUmemorytype type, const void* begin, size_t pitch, size_t slice, size_t rows) {
  Operand out{};
  out.type = type;
  out.base = reinterpret_cast<uintptr_t>(begin);
  out.pitch = pitch;
  out.height = slice == 0 ? rows : slice / pitch;
  return out;
}

CUmemorytype type_of(bool is_host) { return is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE; }

}  // namespace

OpKind copy_kind(const CopySides& sides) {
  const bool from_device = sides.source == Side::kDevice;
  const bool to_device = sides.destination == Side::kDevice;
  if (from_device == to_device) return OpKind::kCopyDtoD;
  return to_device ? OpKind::kCopyHtoD : OpKind::kCopyDtoH;
}

CUresult copy_work(Runtime& rt, const CUDA_MEMCPY3D& c, Work* work, CopySides* sides) {
  const Extent box{c.WidthInBytes, c.Height, c.Depth};
  size_t bytes;
  if (box.bytes == 0 || box.height == 0 || box.depth == 0 ||
      !multiply_add(box.bytes, box.height, 0, &bytes) ||
      !multiply_add(bytes, box.depth, 0, &bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Place from, to;
  if (const CUresult bad = place(rt, source_of(c), box, &from)) return bad;
  if (const CUresult bad = place(rt, destination_of(c), box, &to)) return bad;
  if (from.array && to.array && from.array->element_bytes != to.array->element_bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CopySides ends{from.side, to.side};
  if (sides) *sides = ends;
  work->kind = copy_kind(ends);
  work->body = run_copy;
  work->bytes = box.bytes;
  work->height = box.height;
  work->depth = box.depth;
  work->source = reinterpret_cast<const void*>(from.begin);
  work->source_pitch = from.pitch;
  work->source_slice = from.slice;
  work->source_array = from.array;
  work->destination = reinterpret_cast<void*>(to.begin);
  work->destination_pitch = to.pitch;
  work->destination_slice = to.slice;
  work->destination_array = to.array;
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
  c.WidthInBytes = work.bytes;
  c.Height = work.height;
  c.Depth = work.depth;
  const auto from = type_of(work.kind == OpKind::kCopyHtoD);
  const auto to = type_of(work.kind == OpKind::kCopyDtoH);
  set_source(&c, work.source_array ? within(*work.source_array, work.source)
                                   : laid_out(from, work.source, work.source_pitch,
                                              work.source_slice, work.height));
  set_destination(&c, work.destination_array
                          ? within(*work.destination_array, work.destination)
                          : laid_out(to, work.destination, work.destination_pitch,
                                     work.destination_slice, work.height));
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
