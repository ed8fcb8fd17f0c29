// Events: markers in a stream that carry the device's time.
#include "api.h"
#include "capture.h"
#include "ipc.h"
#include "pool.h"

namespace softgpu {
namespace {

// Finds an event for a call in which the host asks whether it has happened.
CUresult find_to_look_at(const Call& call, CUevent handle, Event** event) {
  if (call.error) return call.error;
  *event = checked<Event>(call.rt.events, handle);
  if (!*event) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult bad = refuse_captured(call.rt, *event)) return bad;
  return refuse_unsafe(call.rt);
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuEventCreate(CUevent* out, unsigned int flags) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  constexpr unsigned kKnown =
      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (!out || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto* event = new Event;
  event->context = call.context;
  event->flags = flags;
  call.rt.events.insert(event);
  *out = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuEventDestroy_v2(CUevent handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* event = checked<Event>(call.rt.events, handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  call.rt.events.erase(event);
  event->destroyed = true;
  if (event->shared) {
    call.rt.post(proto::Type::kEventRelease, proto::EventRelease{{}, event->shared});
  }
  if (event->pending_ops == 0) delete event;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuEventDestroy(CUevent handle) { return cuEventDestroy_v2(handle); }

SOFTGPU_API cuEventRecordWithFlags(CUevent handle, CUstream stream, unsigned int flags) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  auto* event = checked<Event>(on.call.rt.events, handle);
  if (!event || event->context != on.stream->context) return CUDA_ERROR_INVALID_HANDLE;
  if (flags > CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  const bool external = flags == CU_EVENT_RECORD_EXTERNAL;
  if (on.stream->capture) return capture_record(on, event, external);
  if (external) return CUDA_ERROR_INVALID_VALUE;
  event->capture_id = 0;
  event->captured.clear();
  Work work;
  work.event = event;
  const CUresult refused = on.enqueue(work);
  if (!refused) note_record(on.call.rt, event, on.stream);
  return refused;
}

SOFTGPU_API cuEventRecord(CUevent handle, CUstream stream) {
  return cuEventRecordWithFlags(handle, stream, 0);
}

SOFTGPU_API cuEventQuery(CUevent handle) {
  Call call(Call::kNothing);
  Event* event;
  if (const CUresult bad = find_to_look_at(call, handle, &event)) return bad;
  if (event->shared) return query_shared(call, *event);
  Context* context = event->context;
  const uint64_t op = event->op;
  if (call.rt.live(op)) call.rt.let_time_pass(call.lock, op);
  if (call.rt.life != Life::kReady) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  return call.rt.live(op) ? CUDA_ERROR_NOT_READY : context->error;
}

SOFTGPU_API cuEventSynchronize(CUevent handle) {
  Call call(Call::kNothing);
  Event* event;
  if (const CUresult bad = find_to_look_at(call, handle, &event)) return bad;
  if (event->shared) return synchronize_shared(call, *event);
  Context* context = event->context;
  call.rt.wait_for_ops(call.lock, {event->op});
  if (call.rt.life != Life::kReady) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  if (call.rt.events.count(event)) pools_saw_event(call.rt, *event);
  return context->error;
}

SOFTGPU_API cuEventElapsedTime_v2(float* milliseconds, CUevent from, CUevent to) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* start = checked<Event>(call.rt.events, from);
  const auto* end = checked<Event>(call.rt.events, to);
  if (!start || !end) return CUDA_ERROR_INVALID_HANDLE;
  if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = refuse_captured(call.rt, start)) return bad;
  if (const CUresult bad = refuse_captured(call.rt, end)) return bad;
  if (start->op == 0 || end->op == 0) return CUDA_ERROR_INVALID_HANDLE;
  if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
  call.rt.flush();
  if (call.rt.live(start->op) || call.rt.live(end->op)) return CUDA_ERROR_NOT_READY;
  const auto difference_ns = static_cast<int64_t>(end->end_ns - start->end_ns);
  *milliseconds = static_cast<float>(static_cast<double>(difference_ns) * 1e-6);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  return cuEventElapsedTime_v2(milliseconds, from, to);
}
