// Events that stand for all work of a context, or that hold back all its future work.
#include "api.h"
#include "capture.h"
#include "green_context.h"

namespace softgpu {
namespace {

CUresult record(Call& call, Context* context, CUevent handle) {
  auto* event = checked<Event>(call.rt.events, handle);
  Context* home = home_of(context);
  if (!event || event->context != home) return CUDA_ERROR_INVALID_HANDLE;
  if (home->error) return home->error;
  if (const CUresult bad = refuse_synchronization(call.rt, home)) return bad;
  event->capture_id = 0;
  std::vector<uint64_t> tails;
  for (const uint64_t op : last_ops_of(context)) {
    if (call.rt.live(op)) tails.push_back(op);
  }
  Work work;
  work.event = event;
  call.rt.submit(context->green ? context->green->legacy : home->legacy, work, std::move(tails));
  return CUDA_SUCCESS;
}

CUresult wait(Call& call, Context* context, CUevent handle) {
  const auto* event = checked<Event>(call.rt.events, handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  Context* home = home_of(context);
  if (home->error) return home->error;
  if (const CUresult bad = refuse_synchronization(call.rt, home)) return bad;
  if (refuse_captured(call.rt, event)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!call.rt.live(event->op)) return CUDA_SUCCESS;
  for (Stream* stream : streams_of(context)) call.rt.submit(stream, Work(), {event->op});
  context->awaited_op = event->op;  // for streams that are still to be created
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuCtxRecordEvent(CUcontext handle, CUevent event) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* context = checked<Context>(call.rt.contexts, handle);
  return context ? record(call, context, event) : CUDA_ERROR_INVALID_CONTEXT;
}

SOFTGPU_API cuCtxWaitEvent(CUcontext handle, CUevent event) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* context = checked<Context>(call.rt.contexts, handle);
  return context ? wait(call, context, event) : CUDA_ERROR_INVALID_CONTEXT;
}

SOFTGPU_API cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const GreenContext* green = find_green(handle);
  return green ? record(call, green->view, event) : CUDA_ERROR_INVALID_CONTEXT;
}

SOFTGPU_API cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const GreenContext* green = find_green(handle);
  return green ? wait(call, green->view, event) : CUDA_ERROR_INVALID_CONTEXT;
}
