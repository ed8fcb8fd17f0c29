// Streams, including the default ones.
#include <algorithm>

#include "api.h"
#include "capture.h"
#include "green_context.h"
#include "pool.h"

namespace softgpu {

Stream* make_stream(Runtime& rt, Context* context, unsigned flags, int priority) {
  auto* stream = new Stream;
  stream->context = context;
  stream->number = rt.next_number();
  stream->flags = flags;
  stream->priority = priority;
  context->streams.push_back(stream);
  rt.streams.insert(stream);
  rt.post(proto::Type::kStreamCreate,
          proto::StreamCreate{{}, context->number, stream->number, priority, 0});
  return stream;
}

static Stream* per_thread_stream(Runtime& rt, Context* context) {
  auto& own = this_thread().default_streams;
  // A stream of a destroyed context is no longer in the set, even if the context's address is
  // reused.
  for (auto it = own.begin(); it != own.end(); ++it) {
    if (it->context == context && rt.streams.count(it->stream)) return it->stream;
  }
  Stream* made = make_stream(rt, context, CU_STREAM_DEFAULT, 0);
  own.push_back({context, made});
  return made;
}

Stream* resolve_stream(const Call& call, CUstream handle) {
  const auto value = reinterpret_cast<uintptr_t>(handle);
  const bool per_thread = value == 2 || (value == 0 && this_thread().per_thread_default);
  if (per_thread && call.green) return nullptr;  // a green context has none
  if (per_thread) return per_thread_stream(call.rt, call.context);
  if (value <= 1) return call.green ? call.green->legacy : call.context->legacy;
  return checked<Stream>(call.rt.streams, handle);
}

// Finds the stream and checks its context: its own, or the current one for default streams.
CUresult StreamCall::find(CUstream handle) {
  if (call.error) return call.error;
  stream = resolve_stream(call, handle);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->detached) return kStreamDetached;
  return stream->context->error;
}

CUresult StreamCall::find_with_room(CUstream handle) {
  if (const CUresult bad = find(handle)) return bad;
  if (stream->capture) {
    return stream->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  }
  if (stream->legacy && !call.rt.captures.empty()) {
    if (const CUresult bad = refuse_implicit(call.rt, stream, true)) return bad;
  }
  if (call.rt.has_room(stream->context)) return CUDA_SUCCESS;
  call.rt.wait_for_room(call.lock, stream->context);
  if (call.rt.life != Life::kReady) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  return find_with_room(handle);  // it may have been destroyed meanwhile
}

CUresult StreamCall::find_idle(CUstream handle) {
  const CUresult bad = find(handle);
  return bad ? bad : refuse_blocking();
}

CUresult StreamCall::refuse_blocking() {
  if (call.rt.captures.empty()) return CUDA_SUCCESS;
  if (stream->capture) return refuse_in_capture(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  if (stream->legacy) {
    if (const CUresult bad = refuse_implicit(call.rt, stream, true)) return bad;
  }
  return refuse_unsafe(call.rt);
}

CUresult StreamCall::refuse_in_capture(CUresult error) {
  if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  stream->capture->invalid = true;
  return error;
}

CUresult StreamCall::enqueue(const Work& work, uint64_t* operation) {
  if (stream->capture) return capture_work(*this, {work});
  const uint64_t id = call.rt.submit(stream, work);
  if (operation) *operation = id;
  return CUDA_SUCCESS;
}

CUresult StreamCall::enqueue_batch(const std::vector<Work>& batch) {
  if (stream->capture) return capture_work(*this, batch);
  for (const Work& work : batch) call.rt.submit(stream, work);
  return CUDA_SUCCESS;
}

void destroy_stream(Runtime& rt, Stream* stream) {
  leave_capture(rt, stream);
  auto& left = stream->context->left;
  left.erase(std::remove_if(left.begin(), left.end(),
                            [&](const LeftWork& work) { return !rt.live(work.last_op); }),
             left.end());
  if (rt.live(stream->last_op)) {
    left.push_back({stream->last_op, stream->green, stream->blocking()});
  }
  auto& siblings = stream->context->streams;
  siblings.erase(std::find(siblings.begin(), siblings.end(), stream));
  rt.streams.erase(stream);
  rt.post(proto::Type::kStreamDestroy, proto::StreamDestroy{{}, stream->number});
  stream->destroyed = true;
  if (stream->pending_ops == 0) delete stream;
}

// Reads one property of a stream.
template <class Value, class Of>
static CUresult tell(CUstream handle, Value* out, Of value_of) {
  StreamCall on;
  if (const CUresult bad = on.find(handle)) return bad;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = value_of(*on.stream);
  return CUDA_SUCCESS;
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuStreamCreateWithPriority(CUstream* out, unsigned int flags, int priority) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!out || (flags & ~static_cast<unsigned>(CU_STREAM_NON_BLOCKING)) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int clamped = std::clamp(priority, kGreatestPriority, 0);
  Stream* stream = make_stream(call.rt, call.context, flags, clamped);
  if (call.green) confine(call.rt, stream, call.green);
  wait_for_awaited(call.rt, stream);
  *out = reinterpret_cast<CUstream>(stream);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuStreamCreate(CUstream* out, unsigned int flags) {
  return cuStreamCreateWithPriority(out, flags, 0);
}

SOFTGPU_API cuStreamDestroy_v2(CUstream handle) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  auto* stream = checked<Stream>(call.rt.streams, handle);
  if (!stream || stream->legacy) return CUDA_ERROR_INVALID_HANDLE;
  destroy_stream(call.rt, stream);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuStreamDestroy(CUstream handle) { return cuStreamDestroy_v2(handle); }

SOFTGPU_API cuStreamQuery(CUstream handle) {
  StreamCall on;
  if (const CUresult bad = on.find_idle(handle)) return bad;
  Runtime& rt = on.call.rt;
  Context* context = on.stream->context;
  for (const uint64_t op : rt.tail_of(on.stream)) {
    if (!rt.live(op)) continue;
    rt.let_time_pass(on.call.lock, op);
    if (rt.life != Life::kReady) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    if (rt.live(op)) return CUDA_ERROR_NOT_READY;
  }
  return context->error;
}

SOFTGPU_API cuStreamSynchronize(CUstream handle) {
  StreamCall on;
  if (const CUresult bad = on.find_idle(handle)) return bad;
  Context* context = on.stream->context;
  Runtime& rt = on.call.rt;
  rt.wait_for_ops(on.call.lock, rt.tail_of(on.stream));
  if (rt.life != Life::kReady) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  if (rt.streams.count(on.stream)) pools_synchronized(rt, context, on.stream);
  return context->error;
}

SOFTGPU_API cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(handle)) return bad;
  auto* event = checked<Event>(on.call.rt.events, event_handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (flags > CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  const bool external = flags == CU_EVENT_WAIT_EXTERNAL;
  if (on.stream->capture || event->capture_id != 0) return capture_wait(on, event, external);
  if (external) return CUDA_ERROR_INVALID_VALUE;
  if (event->shared) {
    on.call.rt.submit(on.stream, Work(), {proto::kSharedEventBit | event->shared});
    return CUDA_SUCCESS;
  }
  note_wait(on.call.rt, on.stream, *event);
  if (!on.call.rt.live(event->op)) return CUDA_SUCCESS;
  on.call.rt.submit(on.stream, Work(), {event->op});
  return CUDA_SUCCESS;
}

SOFTGPU_API cuStreamGetFlags(CUstream handle, unsigned int* flags) {
  return tell(handle, flags, [](const Stream& stream) { return stream.flags; });
}
SOFTGPU_API cuStreamGetPriority(CUstream handle, int* priority) {
  return tell(handle, priority, [](const Stream& stream) { return stream.priority; });
}
SOFTGPU_API cuStreamGetId(CUstream handle, unsigned long long* id) {
  return tell(handle, id, [](const Stream& stream) { return stream.number; });
}
SOFTGPU_API cuStreamGetDevice(CUstream handle, CUdevice* device) {
  return tell(handle, device, [](const Stream& stream) { return stream.context->device; });
}
SOFTGPU_API cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return tell(handle, context,
              [](const Stream& stream) { return reinterpret_cast<CUcontext>(context_of(stream)); });
}

SOFTGPU_API cuStreamGetCtx_v2(CUstream handle, CUcontext* context, CUgreenCtx* green) {
  StreamCall on;
  if (const CUresult bad = on.find(handle)) return bad;
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  *context = reinterpret_cast<CUcontext>(on.stream->context);
  if (green) *green = reinterpret_cast<CUgreenCtx>(on.stream->green);
  return CUDA_SUCCESS;
}
