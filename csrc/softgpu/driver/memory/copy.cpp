// Copies and memsets.
//
// A copy from pageable memory reads it before the call returns; a copy into pageable memory has
// ended when the call returns. Only copies between device and pinned memory are truly asynchronous.
#include <cstring>

#include "copy.h"
#include "execute.h"

namespace softgpu {

bool side_of(Runtime& rt, const void* pointer, size_t bytes, bool must_be_device, Side* side) {
  const Range* range = find_range(rt, reinterpret_cast<uintptr_t>(pointer), bytes);
  if (!range) {
    *side = Side::kPageable;
    return !must_be_device;
  }
  const bool host = range->kind == RangeKind::kHost || range->kind == RangeKind::kRegistered;
  *side = host ? Side::kPinned : Side::kDevice;
  return true;
}

CUresult stage(Work* work) {
  Work gather = *work;
  gather.destination = work->payload.reserve(work->total_bytes());
  if (!gather.destination) return CUDA_ERROR_OUT_OF_MEMORY;
  gather.destination_pitch = work->bytes;
  gather.destination_slice = work->bytes * work->height;
  if (run_copy(gather)) return CUDA_ERROR_INVALID_VALUE;  // the source is not readable memory
  work->source = nullptr;
  work->source_pitch = gather.destination_pitch;
  work->source_slice = gather.destination_slice;
  return CUDA_SUCCESS;
}

Work copy_work(const Rows& rows, Side source, Side destination) {
  Work work;
  work.kind = copy_kind({source, destination});
  work.body = run_copy;
  work.source = rows.source;
  work.destination = rows.destination;
  work.bytes = rows.bytes;
  work.height = rows.height;
  work.source_pitch = rows.source_pitch;
  work.destination_pitch = rows.destination_pitch;
  return work;
}

namespace {

// Returns SIZE_MAX, more than any memory has, if the product does not fit a size_t.
size_t product(size_t a, size_t b) {
  size_t result;
  return __builtin_mul_overflow(a, b, &result) ? SIZE_MAX : result;
}
size_t extent(size_t bytes, size_t height, size_t pitch) {
  size_t result;
  if (height == 0) return 0;
  return __builtin_add_overflow(product(height - 1, pitch), bytes, &result) ? SIZE_MAX : result;
}

bool may_return_early(CUdeviceptr to, CUdeviceptr from) {
  const Call call(Call::kNothing);
  return !call.error && !synchronizes(call.rt, to) && !synchronizes(call.rt, from);
}

enum Direction { kAny, kToDevice, kToHost, kInDevice };

CUresult copy(const Rows& rows, Direction direction, CUstream handle, bool asynchronous) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(handle)) return bad;
  if (!asynchronous) {
    if (const CUresult bad = on.refuse_blocking()) return bad;
  }
  if (rows.bytes == 0 || rows.height == 0) return CUDA_SUCCESS;
  if (!rows.source || !rows.destination) return CUDA_ERROR_INVALID_VALUE;
  Runtime& rt = on.call.rt;
  Side source, destination;
  if (!side_of(rt, rows.source, extent(rows.bytes, rows.height, rows.source_pitch),
               direction == kToHost || direction == kInDevice, &source) ||
      !side_of(rt, rows.destination, extent(rows.bytes, rows.height, rows.destination_pitch),
               direction == kToDevice || direction == kInDevice, &destination)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Work work = copy_work(rows, source, destination);
  return enqueue_copy(on, work, {source, destination}, asynchronous);
}

enum class Flavour { kPlain, kAsync };

// A memset of device memory is asynchronous in both flavours; a plain one of pinned memory waits.
CUresult set(CUdeviceptr to, uint64_t value, unsigned width, Rows shape, CUstream handle,
             Flavour flavour) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(handle)) return bad;
  if (shape.bytes == 0 || shape.height == 0) return CUDA_SUCCESS;
  Runtime& rt = on.call.rt;
  const size_t whole = extent(shape.bytes, shape.height, shape.destination_pitch);
  Side side;
  if (to % width != 0 || !side_of(rt, to_device(to), whole, true, &side)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Work work;
  work.kind = OpKind::kMemset;
  work.body = run_memset;
  work.destination = to_device(to);
  work.destination_pitch = shape.destination_pitch;
  work.bytes = shape.bytes;
  work.height = shape.height;
  work.value = value;
  work.width_or_flags = width;
  Context* context = on.stream->context;
  uint64_t id = 0;
  const CUresult refused = on.enqueue(work, &id);
  const bool returns = side == Side::kDevice && !synchronizes(rt, to);
  if (refused || flavour == Flavour::kAsync || returns) return refused;
  rt.wait_for_ops(on.call.lock, {id});
  return rt.life == Life::kReady ? context->error : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

CUresult set_line(CUdeviceptr to, uint64_t value, unsigned width, size_t count, CUstream handle,
                  Flavour flavour) {
  return set(to, value, width, line(nullptr, nullptr, product(count, width)), handle, flavour);
}

CUresult set_rows(CUdeviceptr to, size_t pitch, uint64_t value, unsigned element, size_t width,
                  size_t height, CUstream handle, Flavour flavour) {
  const size_t row = product(element, width);
  if (row > pitch && height > 1) return CUDA_ERROR_INVALID_VALUE;
  const Rows shape{nullptr, nullptr, row, height, 0, pitch};
  return set(to, value, element, shape, handle, flavour);
}

}  // namespace

bool synchronizes(Runtime& rt, CUdeviceptr pointer) {
  const Range* range = find_range(rt, pointer, 1);
  return range && range->sync_memops;
}

CUresult enqueue_copy(StreamCall& on, Work work, const CopySides& sides, bool asynchronous) {
  // A captured copy happens when its graph is launched, and uses what memory contains then.
  const bool captured = on.stream->capture != nullptr;
  const bool waits = !captured && (!asynchronous || sides.destination == Side::kPageable);
  if (!waits && !captured && sides.source == Side::kPageable) {
    if (const CUresult bad = stage(&work)) return bad;
  }
  Context* context = on.stream->context;
  uint64_t id = 0;
  const CUresult refused = on.enqueue(work, &id);
  if (refused || !waits) return refused;
  on.call.rt.wait_for_ops(on.call.lock, {id});
  return on.call.rt.life == Life::kReady ? context->error : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return copy(line(from, to_device(to), bytes), kToDevice, nullptr, false);
}
SOFTGPU_API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return copy(line(from, to_device(to), bytes), kToDevice, stream, true);
}
SOFTGPU_API cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return copy(line(from_device(from), to, bytes), kToHost, nullptr, false);
}
SOFTGPU_API cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(line(from_device(from), to, bytes), kToHost, stream, true);
}
SOFTGPU_API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy(line(from_device(from), to_device(to), bytes), kInDevice, nullptr,
              may_return_early(to, from));
}
SOFTGPU_API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(line(from_device(from), to_device(to), bytes), kInDevice, stream, true);
}
SOFTGPU_API cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy(line(from_device(from), to_device(to), bytes), kAny, nullptr, false);
}
SOFTGPU_API cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(line(from_device(from), to_device(to), bytes), kAny, stream, true);
}
// Addresses are unified, so the contexts add nothing to the pointers, but they must be alive.
static CUresult copy_between(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                             CUcontext from_context, size_t bytes, CUstream stream,
                             bool asynchronous) {
  {
    Call call(Call::kContext);
    if (call.error) return call.error;
    for (const CUcontext context : {to_context, from_context}) {
      if (!checked<Context>(call.rt.contexts, context)) return CUDA_ERROR_INVALID_CONTEXT;
    }
  }
  return copy(line(from_device(from), to_device(to), bytes), kInDevice, stream, asynchronous);
}

SOFTGPU_API cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                         CUcontext from_context, size_t bytes) {
  return copy_between(to, to_context, from, from_context, bytes, nullptr,
                      may_return_early(to, from));
}
SOFTGPU_API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                              CUcontext from_context, size_t bytes, CUstream stream) {
  return copy_between(to, to_context, from, from_context, bytes, stream, true);
}

SOFTGPU_API cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return set_line(to, value, 1, count, nullptr, Flavour::kPlain);
}
SOFTGPU_API cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return set_line(to, value, 2, count, nullptr, Flavour::kPlain);
}
SOFTGPU_API cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count) {
  return set_line(to, value, 4, count, nullptr, Flavour::kPlain);
}
SOFTGPU_API cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return set_line(to, value, 1, count, stream, Flavour::kAsync);
}
SOFTGPU_API cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return set_line(to, value, 2, count, stream, Flavour::kAsync);
}
SOFTGPU_API cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
  return set_line(to, value, 4, count, stream, Flavour::kAsync);
}
SOFTGPU_API cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                            size_t height) {
  return set_rows(to, pitch, value, 1, width, height, nullptr, Flavour::kPlain);
}
SOFTGPU_API cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                             size_t height) {
  return set_rows(to, pitch, value, 2, width, height, nullptr, Flavour::kPlain);
}
SOFTGPU_API cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                             size_t height) {
  return set_rows(to, pitch, value, 4, width, height, nullptr, Flavour::kPlain);
}
SOFTGPU_API cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                              size_t height, CUstream stream) {
  return set_rows(to, pitch, value, 1, width, height, stream, Flavour::kAsync);
}
SOFTGPU_API cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                               size_t height, CUstream stream) {
  return set_rows(to, pitch, value, 2, width, height, stream, Flavour::kAsync);
}
SOFTGPU_API cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                               size_t height, CUstream stream) {
  return set_rows(to, pitch, value, 4, width, height, stream, Flavour::kAsync);
}
