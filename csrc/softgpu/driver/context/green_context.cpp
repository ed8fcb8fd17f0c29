#include "green_context.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <unordered_set>

#include "api.h"
#include "context.h"

namespace softgpu {
namespace {

struct Descriptor {
  int device = -1;
  SmResource sm;
  CUdevResource workqueue_config{};  // type INVALID if none was given
};

// Both live as long as the process: descriptors by contract, green contexts because threads may
// still have their views on their stacks. Protected by Runtime::mutex.
std::unordered_set<const void*>& descriptors() {
  static auto* const set = new std::unordered_set<const void*>;
  return *set;
}
std::unordered_set<const void*>& green_contexts() {  // only live ones
  static auto* const set = new std::unordered_set<const void*>;
  return *set;
}

// Imitates drivers that mode mps+green must refuse: one without green contexts, and one whose sets
// of SMs are not what they seem.
std::string_view green_setting() {
  const char* setting = getenv("TANDEM_SOFTGPU_GREEN");
  return setting ? setting : "";
}

SmSet all_sms(const Call& call, int device) {
  SmSet sms;
  for (uint32_t i = 0; i < call.rt.device.device[device].sm_count; ++i) sms.set(i);
  return sms;
}

unsigned least_of(const Call& call, int device) {
  return sm_granularity(call.rt.device.device[device].compute_major).least;
}

CUresult write_sms(const Call& call, int device, const SmSet& sms, unsigned alignment,
                   CUdevResource* out) {
  write_sm_resource({device, sms, ResourceOrigin::kQueried, 0, alignment}, least_of(call, device),
                    out);
  return CUDA_SUCCESS;
}

CUresult write_whole_device(const Call& call, int device, CUdevResource* out) {
  const SmGranularity usual = sm_granularity(call.rt.device.device[device].compute_major);
  return write_sms(call, device, all_sms(call, device), usual.multiple, out);
}

#if CUDA_VERSION >= 13010
void write_workqueue_config(int device, CUdevResource* out) {
  const char* setting = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const long connections = setting ? strtol(setting, nullptr, 10) : 0;
  *out = CUdevResource{};
  out->type = CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG;
  out->wqConfig.device = device;
  out->wqConfig.wqConcurrencyLimit =
      connections >= 1 && connections <= 32 ? static_cast<unsigned>(connections) : 8;
  out->wqConfig.sharingScope = CU_WORKQUEUE_SCOPE_DEVICE_CTX;
}
#endif

CUresult device_resource(const Call& call, int device, CUdevResourceType type, CUdevResource* out) {
  if (type == CU_DEV_RESOURCE_TYPE_SM) return write_whole_device(call, device, out);
#if CUDA_VERSION >= 13010
  if (type == CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG) {
    write_workqueue_config(device, out);
    return CUDA_SUCCESS;
  }
#endif
  return CUDA_ERROR_INVALID_RESOURCE_TYPE;
}

CUresult green_resource(const Call& call, const GreenContext& green, CUdevResourceType type,
                        CUdevResource* out) {
  if (type == CU_DEV_RESOURCE_TYPE_SM) {
    return write_sms(call, green.resource.device, green.resource.sms, green.resource.alignment,
                     out);
  }
#if CUDA_VERSION >= 13010
  if (type == CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG) {
    *out = green.workqueue_config;
    return CUDA_SUCCESS;
  }
#endif
  return CUDA_ERROR_INVALID_RESOURCE_TYPE;
}

// Adds one resource to a descriptor, after those already in it.
CUresult add(const CUdevResource& resource, bool first_sm, Descriptor* to) {
  int device = -1;
  if (resource.type == CU_DEV_RESOURCE_TYPE_SM) {
    SmResource sm;
    if (const CUresult bad = read_sm_resource(resource, &sm)) return bad;
    device = sm.device;
    if (first_sm) {
      to->sm = sm;
    } else {
      const bool same_split = sm.split != 0 && sm.split == to->sm.split;
      if (!same_split || sm.alignment != to->sm.alignment) {
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
      }
      to->sm.sms |= sm.sms;
    }
#if CUDA_VERSION >= 13010
  } else if (resource.type == CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG) {
    const CUdevWorkqueueConfigResource& config = resource.wqConfig;
    if (config.wqConcurrencyLimit == 0 ||
        config.sharingScope > CU_WORKQUEUE_SCOPE_GREEN_CTX_BALANCED ||
        to->workqueue_config.type != CU_DEV_RESOURCE_TYPE_INVALID) {
      return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    }
    device = config.device;
    to->workqueue_config = resource;
    to->workqueue_config.nextResource = nullptr;
#endif
  } else {
    return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  }
  if (to->device >= 0 && to->device != device) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  to->device = device;
  return CUDA_SUCCESS;
}

GreenContext* make_green(Call& call, const Descriptor& descriptor, Context* primary) {
  Runtime& rt = call.rt;
  auto* green = new GreenContext;
  green->primary = primary;
  green->id = rt.next_number();
  green->resource = descriptor.sm;
  green->workqueue_config = descriptor.workqueue_config;
  for (uint32_t i = 0; i < green->resource.sms.size(); ++i) {
    if (green->resource.sms[i]) green->sms.push_back(i);
  }
  if (green_setting() == "shared") {
    for (uint32_t i = 0; i < green->sms.size(); ++i) green->sms[i] = i;
  }
  green->view = new Context;
  green->view->device = primary->device;
  green->view->number = green->id;
  green->view->flags = primary->flags;
  green->view->green = green;
  green->legacy = make_stream(rt, primary, CU_STREAM_DEFAULT, 0);
  green->legacy->legacy = true;
  confine(rt, green->legacy, green);
  rt.contexts.insert(green->view);
  green_contexts().insert(green);
  return green;
}

void end_green_context(Runtime& rt, GreenContext* green) {
  green->alive = green->view->alive = false;
  rt.contexts.erase(green->view);
  green_contexts().erase(green);
}

// The program's own streams remain until it destroys them, but they can no longer be used.
void detach_streams(Runtime& rt, GreenContext* green) {
  auto& streams = green->primary->streams;
  for (Stream* stream : streams) stream->detached = stream->detached || stream->green == green;
  Stream* own = green->legacy;
  streams.erase(std::find(streams.begin(), streams.end(), own));
  rt.streams.erase(own);
  rt.post(proto::Type::kStreamDestroy, proto::StreamDestroy{{}, own->number});
  own->destroyed = true;
  if (own->pending_ops == 0) delete own;
}

}  // namespace

GreenContext* find_green(CUgreenCtx handle) {
  return green_contexts().count(handle) ? reinterpret_cast<GreenContext*>(handle) : nullptr;
}

Context* home_of(Context* context) { return context->green ? context->green->primary : context; }

Context* context_of(const Stream& stream) {
  return stream.green ? stream.green->view : stream.context;
}

std::vector<Stream*> streams_of(const Context* context) {
  if (!context->green) return context->streams;
  std::vector<Stream*> own;
  for (Stream* stream : context->green->primary->streams) {
    if (stream->green == context->green) own.push_back(stream);
  }
  return own;
}

std::vector<uint64_t> last_ops_of(const Context* context) {
  std::vector<uint64_t> ops;
  for (const Stream* stream : streams_of(context)) ops.push_back(stream->last_op);
  const Context* home = context->green ? context->green->primary : context;
  for (const LeftWork& work : home->left) {
    if (!context->green || work.green == context->green) ops.push_back(work.last_op);
  }
  return ops;
}

void wait_for_awaited(Runtime& rt, Stream* stream) {
  std::vector<uint64_t> awaited;
  if (rt.live(stream->context->awaited_op)) awaited.push_back(stream->context->awaited_op);
  if (stream->green && rt.live(stream->green->view->awaited_op)) {
    awaited.push_back(stream->green->view->awaited_op);
  }
  if (!awaited.empty()) rt.submit(stream, Work(), std::move(awaited));
}

void confine(Runtime& rt, Stream* stream, GreenContext* green) {
  stream->green = green;
  proto::StreamConfine message{{}, stream->number, {}};
  for (const uint32_t sm : green->sms) message.sms[sm / 64] |= uint64_t{1} << (sm % 64);
  rt.post(proto::Type::kStreamConfine, message);
}

void end_green_contexts_of(Runtime& rt, const Context* primary) {
  std::vector<GreenContext*> ended;
  for (const void* known : green_contexts()) {
    auto* green = static_cast<GreenContext*>(const_cast<void*>(known));
    if (green->primary == primary) ended.push_back(green);
  }
  for (GreenContext* green : ended) end_green_context(rt, green);
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuDeviceGetDevResource(CUdevice device, CUdevResource* resource,
                                   CUdevResourceType type) {
  if (!resource) return CUDA_ERROR_INVALID_VALUE;
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (device < 0 || static_cast<uint32_t>(device) >= call.rt.device.device_count) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  return device_resource(call, device, type, resource);
}

SOFTGPU_API cuCtxGetDevResource(CUcontext handle, CUdevResource* resource, CUdevResourceType type) {
  if (!resource) return CUDA_ERROR_INVALID_VALUE;
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto* context = checked<Context>(call.rt.contexts, handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->green) return green_resource(call, *context->green, type, resource);
  return device_resource(call, context->device, type, resource);
}

SOFTGPU_API cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource* resource,
                                     CUdevResourceType type) {
  if (!resource) return CUDA_ERROR_INVALID_VALUE;
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const GreenContext* green = find_green(handle);
  return green ? green_resource(call, *green, type, resource) : CUDA_ERROR_INVALID_CONTEXT;
}

SOFTGPU_API cuDevResourceGenerateDesc(CUdevResourceDesc* out, CUdevResource* resources,
                                      unsigned int count) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out || !resources || count == 0) return CUDA_ERROR_INVALID_VALUE;
  Descriptor descriptor;
  bool has_sm = false;
  for (unsigned i = 0; i < count; ++i) {
    if (const CUresult bad = add(resources[i], !has_sm, &descriptor)) return bad;
    has_sm = has_sm || resources[i].type == CU_DEV_RESOURCE_TYPE_SM;
  }
  if (static_cast<uint32_t>(descriptor.device) >= call.rt.device.device_count) {
    return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  }
  if (!has_sm) {
    CUdevResource whole;
    write_whole_device(call, descriptor.device, &whole);
    read_sm_resource(whole, &descriptor.sm);
  }
#if CUDA_VERSION >= 13010
  if (descriptor.workqueue_config.type == CU_DEV_RESOURCE_TYPE_INVALID) {
    write_workqueue_config(descriptor.device, &descriptor.workqueue_config);
  }
#endif
  auto* kept = new Descriptor(descriptor);
  descriptors().insert(kept);
  *out = reinterpret_cast<CUdevResourceDesc>(kept);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuGreenCtxCreate(CUgreenCtx* out, CUdevResourceDesc handle, CUdevice device,
                             unsigned int flags) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  constexpr unsigned kKnown = CU_GREEN_CTX_DEFAULT_STREAM;
  if (green_setting() == "none") return CUDA_ERROR_NOT_SUPPORTED;
  if (!out || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (device < 0 || static_cast<uint32_t>(device) >= call.rt.device.device_count) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  const auto* descriptor = checked<Descriptor>(descriptors(), handle);
  if (!descriptor || descriptor->device != device) return CUDA_ERROR_INVALID_VALUE;
  Context* primary = nullptr;
  if (const CUresult bad = retain_primary(call, device, &primary)) return bad;
  *out = reinterpret_cast<CUgreenCtx>(make_green(call, *descriptor, primary));
  return CUDA_SUCCESS;
}

SOFTGPU_API cuGreenCtxDestroy(CUgreenCtx handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  GreenContext* green = find_green(handle);
  if (!green) return CUDA_ERROR_INVALID_CONTEXT;
  end_green_context(call.rt, green);
  detach_streams(call.rt, green);
  return release_primary(call, green->primary->device);
}

SOFTGPU_API cuCtxFromGreenCtx(CUcontext* out, CUgreenCtx handle) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const GreenContext* green = find_green(handle);
  if (!green) return CUDA_ERROR_INVALID_CONTEXT;
  *out = reinterpret_cast<CUcontext>(green->view);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuGreenCtxGetId(CUgreenCtx handle, unsigned long long* id) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!id) return CUDA_ERROR_INVALID_VALUE;
  const auto& stack = this_thread().stack;
  const GreenContext* green = find_green(handle);
  if (!handle && !stack.empty() && stack.back()) green = stack.back()->green;
  if (!green) return CUDA_ERROR_INVALID_CONTEXT;
  if (!green->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *id = green->id;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuGreenCtxStreamCreate(CUstream* out, CUgreenCtx handle, unsigned int flags,
                                   int priority) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  GreenContext* green = find_green(handle);
  if (!green) return CUDA_ERROR_INVALID_CONTEXT;
  if (green->primary->error) return green->primary->error;
  Stream* stream =
      make_stream(call.rt, green->primary, flags, std::clamp(priority, kGreatestPriority, 0));
  confine(call.rt, stream, green);
  wait_for_awaited(call.rt, stream);
  *out = reinterpret_cast<CUstream>(stream);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuStreamGetGreenCtx(CUstream handle, CUgreenCtx* out) {
  StreamCall on;
  if (const CUresult bad = on.find(handle)) return bad;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUgreenCtx>(on.stream->green);
  return CUDA_SUCCESS;
}

#if CUDA_VERSION >= 13010
SOFTGPU_API cuStreamGetDevResource(CUstream handle, CUdevResource* resource,
                                   CUdevResourceType type) {
  if (!resource) return CUDA_ERROR_INVALID_VALUE;
  StreamCall on;
  if (const CUresult bad = on.find(handle)) return bad;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  if (on.stream->green) return green_resource(on.call, *on.stream->green, type, resource);
  return device_resource(on.call, on.stream->context->device, type, resource);
}
#endif
