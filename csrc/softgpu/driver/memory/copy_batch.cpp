// Copies that come many at a time, and with attributes.
#include <vector>

#include "batch.h"
#include "capture.h"
#include "copy.h"

namespace softgpu {
namespace {

struct Prepared {
  std::vector<Work> works;
  bool waits = false;  // until they have ended, before the call returns
};

CUresult check(const CUmemcpyAttributes& attributes) {
  switch (attributes.srcAccessOrder) {
    case CU_MEMCPY_SRC_ACCESS_ORDER_STREAM:
    case CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL:
    case CU_MEMCPY_SRC_ACCESS_ORDER_ANY: break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  constexpr unsigned kKnown = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
  return (attributes.flags & ~kKnown) != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// All of it in one allocation, or none of it in any.
bool reaches(Runtime& rt, CUdeviceptr pointer, size_t bytes) {
  return bytes <= UINTPTR_MAX - pointer &&
         (find_range(rt, pointer, bytes) || !find_range(rt, pointer, 1));
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
  Work work = copy_work(rows, source, destination);
  // Host memory may change once the call is over; of device memory the copy itself has to be.
  const bool now = order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
  if (now && source != Side::kDevice) {
    if (const CUresult bad = stage(&work)) return bad;
  }
  prepared->waits |= destination == Side::kPageable || (now && source == Side::kDevice);
  prepared->works.push_back(work);
  return CUDA_SUCCESS;
}

CUresult run(StreamCall& on, const Prepared& prepared) {
  if (on.stream->capture) return on.refuse_in_capture(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  Context* context = on.stream->context;
  uint64_t last = 0;
  for (const Work& work : prepared.works) {
    if (const CUresult bad = on.enqueue(work, &last)) return bad;
  }
  if (!prepared.waits) return CUDA_SUCCESS;
  on.call.rt.wait_for_ops(on.call.lock, {last});
  return on.call.rt.life == Life::kReady ? context->error : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

// `failed` is the copy that an error is about; SIZE_MAX for none.
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
    if (const CUresult bad = check(attributes[k])) return bad;
  }
  Prepared prepared;
  for (size_t i = 0, k = 0; i < count; ++i) {
    if (k + 1 < settings && firsts[k + 1] == i) ++k;
    const CUresult bad = prepare(on.call.rt, to[i], from[i], bytes[i],
                                 attributes[k].srcAccessOrder, &prepared);
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

#if CUDA_VERSION >= 13020
SOFTGPU_API cuMemcpyWithAttributesAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                        CUmemcpyAttributes* attributes, CUstream stream) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  if (!attributes) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = check(*attributes)) return bad;
  Prepared prepared;
  const CUresult bad =
      prepare(on.call.rt, to, from, bytes, attributes->srcAccessOrder, &prepared);
  return bad ? bad : run(on, prepared);
}
#endif
