// Contexts: primary ones, created ones, and each thread's stack of them.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "api.h"
#include "array.h"
#include "capture.h"
#include "context.h"
#include "green_context.h"
#include "module.h"
#include "pool.h"

namespace softgpu {
namespace {

// The share of the SMs that MPS gives the contexts of this process.
uint32_t default_sm_percent(const Runtime& rt) {
  return std::clamp(static_cast<uint32_t>(std::ceil(rt.mps.percent)), 1U, 100U);
}

CUresult create_context(Call& call, int device, unsigned flags, uint32_t sm_percent,
                        Context** made) {
  proto::MemReply reply;
  if (!call.rt.ask_memory(call.lock, 1, device, proto::MemKind::kContext, &reply)) {
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
  if (reply.status) return static_cast<CUresult>(reply.status);
  auto* context = new Context;
  context->device = device;
  context->number = call.rt.next_number();
  context->flags = flags;
  context->sm_percent = sm_percent;
  context->allocation = reply.allocation;
  call.rt.contexts.insert(context);
  call.rt.post(proto::Type::kContextCreate,
               proto::ContextCreate{{}, context->number, call.rt.gpu_of(device), sm_percent});
  context->legacy = make_stream(call.rt, context, CU_STREAM_DEFAULT, 0);
  context->legacy->legacy = true;
  *made = context;
  return load_libraries_into(call.rt, context);
}

// Converts the SM limit in the parameters to the percentage that the device uses.
CUresult read_affinity(const Call& call, int device, const CUexecAffinityParam* params, int count,
                       uint32_t* percent) {
  if (count < 0 || (count > 0 && !params)) return CUDA_ERROR_INVALID_VALUE;
  const uint32_t sms = call.rt.device.device[device].sm_count;
  for (int i = 0; i < count; ++i) {
    const bool mps = call.rt.device.mode == static_cast<uint32_t>(proto::Mode::kMps);
    if (params[i].type != CU_EXEC_AFFINITY_TYPE_SM_COUNT || !mps) {
      return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
    }
    const unsigned wanted = params[i].param.smCount.val;
    if (wanted == 0 || wanted > sms) return CUDA_ERROR_INVALID_VALUE;
    *percent = 1;
    while (*percent < 100 && sms_of_percent(sms, *percent) < wanted) ++*percent;
  }
  return CUDA_SUCCESS;
}

void forget_events_of(Runtime& rt, const Context* context) {
  for (auto it = rt.events.begin(); it != rt.events.end();) {
    auto* event = static_cast<Event*>(const_cast<void*>(*it));
    if (event->context != context) {
      ++it;
      continue;
    }
    it = rt.events.erase(it);
    event->destroyed = true;
    if (event->pending_ops == 0) delete event;
  }
}

// Frees everything in the context. Its own object stays, for threads that still have it on their
// stacks.
void destroy_context(Call& call, Context* context) {
  Runtime& rt = call.rt;
  context->alive = false;
  end_green_contexts_of(rt, context);
  const std::vector<uint64_t> ops = last_ops_of(context);
  rt.post(proto::Type::kContextDestroy, proto::ContextDestroy{{}, context->number});
  rt.wait_for_ops(call.lock, ops);  // the device ends them all, those still running with an error
  rt.contexts.erase(context);
  rt.ended_contexts.push_back(context);
  for (Stream* stream : context->streams) {
    leave_capture(rt, stream);
    rt.streams.erase(stream);
    delete stream;
  }
  context->streams.clear();
  context->legacy = nullptr;
  for (auto it = rt.ranges.begin(); it != rt.ranges.end();) {
    Range& range = it->second;
    const bool ours = range.context == context && range.kind == RangeKind::kDevice && !range.pool;
    if (ours) unmap_range(range);
    if (ours) rt.post(proto::Type::kMemRelease, proto::MemRelease{{}, range.allocation});
    it = ours ? rt.ranges.erase(it) : std::next(it);
  }
  free_arrays_of(rt, context);
  const bool last = std::none_of(rt.contexts.begin(), rt.contexts.end(), [&](const void* other) {
    return static_cast<const Context*>(other)->device == context->device;
  });
  if (last) empty_pools(rt, context->device);
  reap_frees(rt);
  unload_modules_of(rt, context);
  forget_events_of(rt, context);
  rt.post(proto::Type::kMemRelease, proto::MemRelease{{}, context->allocation});
  rt.flush();
}

struct NewContext {
  unsigned flags;
  CUdevice device;
  const CUexecAffinityParam* affinity = nullptr;
  int affinity_count = 0;
  unsigned api_version = 3020;
};

CUresult create_and_push(CUcontext* out, const NewContext& wanted) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out || !known_context_flags(wanted.flags)) return CUDA_ERROR_INVALID_VALUE;
  const CUdevice device = wanted.device;
  if (device < 0 || static_cast<uint32_t>(device) >= call.rt.device.device_count) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  uint32_t percent = default_sm_percent(call.rt);
  if (const CUresult bad =
          read_affinity(call, device, wanted.affinity, wanted.affinity_count, &percent)) {
    return bad;
  }
  Context* context = nullptr;
  const CUresult result = create_context(call, device, wanted.flags, percent, &context);
  if (result) return result;
  context->api_version = wanted.api_version;
  this_thread().stack.push_back(context);
  *out = reinterpret_cast<CUcontext>(context);
  return CUDA_SUCCESS;
}

bool bad_device(const Call& call, CUdevice device) {
  return device < 0 || static_cast<uint32_t>(device) >= call.rt.device.device_count;
}

}  // namespace

bool known_context_flags(unsigned flags) {
  const unsigned scheduling = flags & CU_CTX_SCHED_MASK;  // at most one of these
  return (flags & ~static_cast<unsigned>(CU_CTX_FLAGS_MASK)) == 0 &&
         (scheduling & (scheduling - 1)) == 0;
}

Context* current() {
  const auto& stack = this_thread().stack;
  return stack.empty() ? nullptr : stack.back();
}

CUresult retain_primary(Call& call, int device, Context** out) {
  const auto index = static_cast<size_t>(device);
  if (!call.rt.primary[index]) {
    Context* made = nullptr;
    const CUresult result = create_context(call, device, call.rt.primary_flags[index],
                                           default_sm_percent(call.rt), &made);
    if (result) return result;
    made->primary = true;
    if (call.rt.primary[index]) {
      destroy_context(call, made);  // another thread was faster while this one asked for memory
    } else {
      call.rt.primary[index] = made;
    }
  }
  ++call.rt.primary_references[index];
  *out = call.rt.primary[index];
  return CUDA_SUCCESS;
}

CUresult release_primary(Call& call, int device) {
  const auto index = static_cast<size_t>(device);
  if (call.rt.primary_references[index] == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (--call.rt.primary_references[index] == 0) {
    Context* context = std::exchange(call.rt.primary[index], nullptr);
    if (context) destroy_context(call, context);
  }
  return CUDA_SUCCESS;
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (bad_device(call, device)) return CUDA_ERROR_INVALID_DEVICE;
  return retain_primary(call, device, reinterpret_cast<Context**>(out));
}

SOFTGPU_API cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (bad_device(call, device)) return CUDA_ERROR_INVALID_DEVICE;
  return release_primary(call, device);
}

SOFTGPU_API cuDevicePrimaryCtxRelease(CUdevice device) {
  return cuDevicePrimaryCtxRelease_v2(device);
}

SOFTGPU_API cuDevicePrimaryCtxReset_v2(CUdevice device) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (bad_device(call, device)) return CUDA_ERROR_INVALID_DEVICE;
  Context* context = std::exchange(call.rt.primary[static_cast<size_t>(device)], nullptr);
  if (context) destroy_context(call, context);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }

SOFTGPU_API cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (bad_device(call, device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
  *flags = call.rt.primary_flags[static_cast<size_t>(device)];
  *active = call.rt.primary[static_cast<size_t>(device)] != nullptr;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (bad_device(call, device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!known_context_flags(flags)) return CUDA_ERROR_INVALID_VALUE;
  const auto index = static_cast<size_t>(device);
  call.rt.primary_flags[index] = flags;
  if (call.rt.primary[index]) call.rt.primary[index]->flags = flags;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

SOFTGPU_API cuCtxCreate(CUcontext* out, unsigned int flags, CUdevice device) {
  return create_and_push(out, {flags, device, nullptr, 0, 3010});
}

SOFTGPU_API cuCtxCreate_v2(CUcontext* out, unsigned int flags, CUdevice device) {
  return create_and_push(out, {flags, device});
}

SOFTGPU_API cuCtxCreate_v3(CUcontext* out, CUexecAffinityParam* params, int count,
                           unsigned int flags, CUdevice device) {
  return create_and_push(out, {flags, device, params, count});
}

SOFTGPU_API cuCtxCreate_v4(CUcontext* out, CUctxCreateParams* params, unsigned int flags,
                           CUdevice device) {
  if (!params) return create_and_push(out, {flags, device});
  if (params->cigParams) {  // for work of graphics clients, which do not exist here
    return params->execAffinityParams ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_SUPPORTED;
  }
  return create_and_push(
      out, {flags, device, params->execAffinityParams, params->numExecAffinityParams});
}

SOFTGPU_API cuCtxAttach(CUcontext* out, unsigned int flags) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!out || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  ++current()->usage;
  *out = reinterpret_cast<CUcontext>(current());
  return CUDA_SUCCESS;
}

SOFTGPU_API cuCtxDestroy_v2(CUcontext handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  auto* context = checked<Context>(call.rt.contexts, handle);
  if (!context || context->primary || context->green) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = this_thread().stack;
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  destroy_context(call, context);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuCtxDestroy(CUcontext handle) { return cuCtxDestroy_v2(handle); }

SOFTGPU_API cuCtxDetach(CUcontext handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* context = checked<Context>(call.rt.contexts, handle);
  if (!context || context != current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->usage > 1) {
    --context->usage;
    return CUDA_SUCCESS;
  }
  call.lock.unlock();
  return cuCtxDestroy_v2(handle);
}

SOFTGPU_API cuCtxPushCurrent_v2(CUcontext handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (handle && !checked<Context>(call.rt.contexts, handle)) return CUDA_ERROR_INVALID_CONTEXT;
  this_thread().stack.push_back(reinterpret_cast<Context*>(handle));
  return CUDA_SUCCESS;
}

SOFTGPU_API cuCtxPushCurrent(CUcontext handle) { return cuCtxPushCurrent_v2(handle); }

SOFTGPU_API cuCtxPopCurrent_v2(CUcontext* out) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto& stack = this_thread().stack;
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (out) *out = reinterpret_cast<CUcontext>(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

SOFTGPU_API cuCtxPopCurrent(CUcontext* out) { return cuCtxPopCurrent_v2(out); }

SOFTGPU_API cuCtxSetCurrent(CUcontext handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto& stack = this_thread().stack;
  if (!handle) {
    if (!stack.empty()) stack.pop_back();
    return CUDA_SUCCESS;
  }
  auto* context = checked<Context>(call.rt.contexts, handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (stack.empty()) {
    stack.push_back(context);
  } else {
    stack.back() = context;
  }
  return CUDA_SUCCESS;
}

SOFTGPU_API cuCtxGetCurrent(CUcontext* out) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUcontext>(current());
  return CUDA_SUCCESS;
}

SOFTGPU_API cuCtxGetDevice(CUdevice* device) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current()->device;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  if (!handle) return cuCtxGetDevice(device);
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* context = checked<Context>(call.rt.contexts, handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuCtxGetId(CUcontext handle, unsigned long long* id) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* context = handle ? checked<Context>(call.rt.contexts, handle) : current();
  if (!context) return handle ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  *id = context->number;
  return CUDA_SUCCESS;
}

static CUresult synchronize(Call& call, Context* context) {
  Context* home = home_of(context);
  if (home->error) return home->error;
  if (const CUresult bad = refuse_synchronization(call.rt, home)) return bad;
  if (const CUresult bad = refuse_unsafe(call.rt)) return bad;
  call.rt.wait_for_ops(call.lock, last_ops_of(context));
  if (call.rt.life != Life::kReady) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  pools_synchronized(call.rt, home, nullptr);
  return context->alive ? home->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

SOFTGPU_API cuCtxSynchronize() {
  Call call(Call::kContext);
  if (call.error) return call.error;
  return synchronize(call, current());
}

SOFTGPU_API cuCtxSynchronize_v2(CUcontext handle) {
  if (!handle) return cuCtxSynchronize();
  Call call(Call::kNothing);
  if (call.error) return call.error;
  auto* context = checked<Context>(call.rt.contexts, handle);
  return context ? synchronize(call, context) : CUDA_ERROR_INVALID_CONTEXT;
}
