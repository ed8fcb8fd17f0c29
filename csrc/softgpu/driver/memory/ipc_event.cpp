// Interprocess events. The device process orders their waits and records, because it alone sees the
// operations of all its clients.
#include <sys/random.h>

#include <cstring>

#include "ipc.h"

namespace softgpu {
namespace {

constexpr uint64_t kEventMagic = 0x31746e6576457047;  // "GpEvent1"
constexpr uint64_t kFirstPollNs = 10'000;

struct EventHandle {
  uint64_t magic, event, cookie, maker;
  char unused[32];
};
static_assert(sizeof(EventHandle) == sizeof(CUipcEventHandle));

CUresult watch(Call& call, const Event& event, bool patient) {
  proto::EventReply reply;
  const proto::EventWatch message{{}, call.rt.next_number(), event.shared, patient, 0};
  Context* context = event.context;
  if (!call.rt.ask_event(call.lock, proto::Type::kEventWatch, message, &reply)) {
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
  return reply.status ? static_cast<CUresult>(reply.status) : context->error;
}

}  // namespace

CUresult query_shared(Call& call, const Event& event) {
  const CUresult now = watch(call, event, false);
  if (now != CUDA_ERROR_NOT_READY || !call.rt.is_virtual()) return now;
  // Like any unsatisfied poll, this lets time pass; otherwise a polling loop would stop the clock.
  call.rt.wait(call.lock, [] { return false; }, call.rt.now_ns() + kFirstPollNs);
  return CUDA_ERROR_NOT_READY;
}

CUresult synchronize_shared(Call& call, const Event& event) { return watch(call, event, true); }

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuIpcGetEventHandle(CUipcEventHandle* out, CUevent handle) {
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Call call(Call::kContext);
  if (call.error) return call.error;
  auto* event = checked<Event>(call.rt.events, handle);
  if (!event || event->opened || !(event->flags & CU_EVENT_INTERPROCESS)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (event->shared == 0) {
    uint64_t cookie = 0;
    if (getrandom(&cookie, sizeof cookie, 0) != sizeof cookie) return CUDA_ERROR_OPERATING_SYSTEM;
    proto::EventReply reply;
    const proto::EventShare message{{}, call.rt.next_number(), event->op, cookie};
    if (!call.rt.ask_event(call.lock, proto::Type::kEventShare, message, &reply)) {
      return CUDA_ERROR_DEVICE_UNAVAILABLE;
    }
    if (reply.status) return static_cast<CUresult>(reply.status);
    // The lock was released: another thread may have destroyed or shared the event.
    if (!call.rt.events.count(event) || event->shared) {
      call.rt.post(proto::Type::kEventRelease, proto::EventRelease{{}, reply.event});
      if (!call.rt.events.count(event)) return CUDA_ERROR_INVALID_HANDLE;
    } else {
      event->shared = reply.event;
      event->cookie = cookie;
    }
  }
  const EventHandle made{kEventMagic, event->shared, event->cookie, call.rt.device.client_id, {}};
  memcpy(out, &made, sizeof made);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuIpcOpenEventHandle(CUevent* out, CUipcEventHandle handle) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  EventHandle given;
  memcpy(&given, &handle, sizeof given);
  if (given.magic != kEventMagic) return CUDA_ERROR_INVALID_HANDLE;
  if (given.maker == call.rt.device.client_id) return CUDA_ERROR_INVALID_CONTEXT;
  proto::EventReply reply;
  const proto::EventOpen message{{}, call.rt.next_number(), given.event, given.cookie};
  Context* context = call.context;
  if (!call.rt.ask_event(call.lock, proto::Type::kEventOpen, message, &reply)) {
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
  if (reply.status) return static_cast<CUresult>(reply.status);
  auto* event = new Event;
  event->context = context;
  event->flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  event->shared = reply.event;
  event->cookie = given.cookie;
  event->opened = true;
  call.rt.events.insert(event);
  *out = reinterpret_cast<CUevent>(event);
  return CUDA_SUCCESS;
}
