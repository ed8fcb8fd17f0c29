// Stream memory operations: a stream writes a word in device or mapped host memory, or waits for
// one.
#include "api.h"
#include "execute.h"
#include "work.h"

namespace softgpu {
namespace {

CUresult word(Runtime& rt, OpKind kind, CUdeviceptr address, uint64_t value, size_t bytes,
              unsigned flags, Work* work) {
  if (address % bytes != 0 || !find_range(rt, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  work->kind = kind;
  // A write has no body for the device to wait for: on a GPU a store takes no time, whereas a round
  // trip would stall the stream for tens of microseconds. The write is done when DONE arrives
  // (Runtime::on_done).
  if (kind == OpKind::kMemOpWait) work->body = run_wait_value;
  work->destination = reinterpret_cast<void*>(address);
  work->value = value;
  work->bytes = bytes;
  work->width_or_flags = flags;
  return CUDA_SUCCESS;
}

CUresult one(CUstream stream, OpKind kind, CUdeviceptr address, uint64_t value, size_t bytes,
             unsigned flags) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  Work work;
  if (const CUresult bad = word(on.call.rt, kind, address, value, bytes, flags, &work)) return bad;
  return on.enqueue(work);
}

}  // namespace

CUresult memop_work(Runtime& rt, const CUstreamBatchMemOpParams& p, Work* work) {
  switch (p.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return word(rt, OpKind::kMemOpWait, p.waitValue.address, p.waitValue.value, 4,
                  p.waitValue.flags, work);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return word(rt, OpKind::kMemOpWait, p.waitValue.address, p.waitValue.value64, 8,
                  p.waitValue.flags, work);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return word(rt, OpKind::kMemOpWrite, p.writeValue.address, p.writeValue.value, 4, 0, work);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return word(rt, OpKind::kMemOpWrite, p.writeValue.address, p.writeValue.value64, 8, 0, work);
    case CU_STREAM_MEM_OP_BARRIER:
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: return CUDA_SUCCESS;  // everything is ordered here
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

CUstreamBatchMemOpParams describe_memop(const Work& work) {
  CUstreamBatchMemOpParams memop{};
  const bool wide = work.bytes == 8;
  if (work.kind == OpKind::kMemOpWait) {
    memop.operation = wide ? CU_STREAM_MEM_OP_WAIT_VALUE_64 : CU_STREAM_MEM_OP_WAIT_VALUE_32;
    memop.waitValue.address = reinterpret_cast<CUdeviceptr>(work.destination);
    memop.waitValue.value64 = work.value;
    memop.waitValue.flags = work.width_or_flags;
  } else if (work.kind == OpKind::kMemOpWrite) {
    memop.operation = wide ? CU_STREAM_MEM_OP_WRITE_VALUE_64 : CU_STREAM_MEM_OP_WRITE_VALUE_32;
    memop.writeValue.address = reinterpret_cast<CUdeviceptr>(work.destination);
    memop.writeValue.value64 = work.value;
  } else {
    memop.operation = CU_STREAM_MEM_OP_BARRIER;
  }
  return memop;
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                    unsigned int flags) {
  return one(stream, OpKind::kMemOpWrite, address, value, 4, flags);
}
SOFTGPU_API cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                    unsigned int flags) {
  return one(stream, OpKind::kMemOpWrite, address, value, 8, flags);
}
SOFTGPU_API cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                   unsigned int flags) {
  return one(stream, OpKind::kMemOpWait, address, value, 4, flags);
}
SOFTGPU_API cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                   unsigned int flags) {
  return one(stream, OpKind::kMemOpWait, address, value, 8, flags);
}
SOFTGPU_API cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                                  CUstreamBatchMemOpParams* params, unsigned int flags) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  if (!params || count > 256 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Work> batch(count);
  for (unsigned i = 0; i < count; ++i) {
    if (const CUresult bad = memop_work(on.call.rt, params[i], &batch[i])) return bad;
  }
  return on.enqueue_batch(batch);
}
