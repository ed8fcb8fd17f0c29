// Kernel launches and host functions.
#include <cstring>

#include "api.h"
#include "capture.h"
#include "execute.h"
#include "green_context.h"
#include "launch_plan.h"
#include "module.h"
#include "work.h"

namespace softgpu {
namespace {

// `extra` is a list of tags and values that ends with CU_LAUNCH_PARAM_END, which is null.
CUresult copy_extra(const Function& function, void** extra, char* to) {
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[1];
    } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      bytes = *static_cast<const size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (bytes < function.params_bytes || (!buffer && function.params_bytes > 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (function.params_bytes > 0) memcpy(to, buffer, function.params_bytes);
  return CUDA_SUCCESS;
}

CUresult copy_params(const Function& function, void** params, void** extra, Payload* payload) {
  char* to = payload->reserve(function.params_bytes);
  if (!to) return CUDA_ERROR_OUT_OF_MEMORY;
  if (extra) return params ? CUDA_ERROR_INVALID_VALUE : copy_extra(function, extra, to);
  const tandem::KernelEntry& entry = *function.entry;
  if (!params) return entry.param_count == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < entry.param_count; ++i) {
    if (!params[i]) return CUDA_ERROR_INVALID_VALUE;
    memcpy(to + entry.param_offset[i], params[i], entry.param_size[i]);
  }
  return CUDA_SUCCESS;
}

CUresult record(StreamCall* on, Event* event) {
  if (!event) return CUDA_SUCCESS;
  if (on->stream->capture) return capture_record(*on, event, false);
  Work work;
  work.event = event;
  return on->enqueue(work);
}

CUresult launch(CUfunction handle, const CUlaunchConfig& config, void** params, void** extra) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(config.hStream)) return bad;
  Function* function;
  Runtime& rt = on.call.rt;
  if (const CUresult bad = resolve_function(rt, on.stream->context, handle, &function)) return bad;
  // "The context associated with this stream must match that associated with function f."
  if (function->module->context != on.stream->context) return CUDA_ERROR_INVALID_HANDLE;
  LaunchPlan plan;
  Work work;
  if (const CUresult bad = kernel_work(rt, function, config, params, extra, &plan, &work)) {
    return bad;
  }
  const GreenContext* green = on.stream->green;
  if (plan.cooperative && green && plan.least_sms() > green->sms.size())
    return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  function->legacy.reset();
  const auto own = on.stream->attributes.find(CU_STREAM_ATTRIBUTE_PRIORITY);
  if (!plan.priority && own != on.stream->attributes.end()) {
    work.own_priority = true;
    work.priority = own->second.priority;
  }
  if (const CUresult bad = on.enqueue(work)) return bad;
  if (on.stream->capture) capture_attributes(on, config);
  // Both events fire when the kernel has ended: maybe later than on a GPU, never too early.
  if (const CUresult bad = record(&on, plan.programmatic_event)) return bad;
  return record(&on, plan.completion_event);
}

}  // namespace

CUresult kernel_work(const Runtime& rt, Function* function, const CUlaunchConfig& config,
                     void** params, void** extra, LaunchPlan* plan, Work* work) {
  const CUresult bad = plan_launch(rt, *function, config, LaunchUse::kLaunch, plan);
  if (bad) return bad;
  work->kind = OpKind::kKernel;
  work->body = run_kernel;
  work->function = function;
  memcpy(work->grid, plan->grid, sizeof work->grid);
  memcpy(work->block, plan->block, sizeof work->block);
  work->shared_bytes = plan->shared_bytes;
  work->blocks_per_sm = plan->blocks_per_sm;
  work->least_sms = plan->least_sms();
  work->cooperative = plan->cooperative;
  memcpy(work->cluster, plan->cluster, sizeof work->cluster);
  work->own_priority = plan->priority.has_value();
  if (plan->priority) work->priority = clamp_priority(*plan->priority);
  function->loaded = true;
  return copy_params(*function, params, extra, &work->payload);
}

Work host_work(CUhostFn function, void* user) {
  Work work;
  work.kind = OpKind::kHostFunc;
  work.body = run_host_function;
  work.host_function = function;
  work.user = user;
  return work;
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuLaunchKernel(CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
                           unsigned int bx, unsigned int by, unsigned int bz,
                           unsigned int shared_bytes, CUstream stream, void** params,
                           void** extra) {
  return launch(f, {gx, gy, gz, bx, by, bz, shared_bytes, stream, nullptr, 0}, params, extra);
}

SOFTGPU_API cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** params,
                             void** extra) {
  return config ? launch(f, *config, params, extra) : CUDA_ERROR_INVALID_VALUE;
}

SOFTGPU_API cuLaunchCooperativeKernel(CUfunction f, unsigned int gx, unsigned int gy,
                                      unsigned int gz, unsigned int bx, unsigned int by,
                                      unsigned int bz, unsigned int shared_bytes, CUstream stream,
                                      void** params) {
  CUlaunchAttribute cooperative{};
  cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  cooperative.value.cooperative = 1;
  return launch(f, {gx, gy, gz, bx, by, bz, shared_bytes, stream, &cooperative, 1}, params,
                nullptr);
}

SOFTGPU_API cuLaunchHostFunc(CUstream stream, CUhostFn function, void* user) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  return on.enqueue(host_work(function, user));
}

SOFTGPU_API cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* user,
                                unsigned int flags) {
  StreamCall on;
  if (const CUresult bad = on.find_with_room(stream)) return bad;
  if (!callback || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (on.stream->capture) return on.refuse_in_capture(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  Work work;
  work.kind = OpKind::kHostFunc;
  work.body = run_callback;
  work.callback = callback;
  work.handle = stream;
  work.user = user;
  return on.enqueue(work);
}
