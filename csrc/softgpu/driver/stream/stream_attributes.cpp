// Attributes of streams: the defaults for launches into them. All but the priority are hints that
// have no effect in the software GPU.
#include "api.h"
#include "function_attributes.h"
#include "launch_plan.h"

namespace softgpu {
namespace {

bool of_streams(CUstreamAttrID id) {
  return id == CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW ||
         id == CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY || id == CU_STREAM_ATTRIBUTE_PRIORITY ||
         id == CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP || id == CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN;
}

CUstreamAttrValue standard(CUstreamAttrID id) {
  CUstreamAttrValue value{};
  if (id == CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY) value.syncPolicy = CU_SYNC_POLICY_AUTO;
  if (id == CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP) value.memSyncDomainMap.remote = 1;
  return value;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuStreamGetAttribute(CUstream handle, CUstreamAttrID id, CUstreamAttrValue* value) {
  StreamCall on;
  if (const CUresult bad = on.find(handle)) return bad;
  if (!value || !of_streams(id)) return CUDA_ERROR_INVALID_VALUE;
  const auto own = on.stream->attributes.find(id);
  *value = own == on.stream->attributes.end() ? standard(id) : own->second;
  const bool created_with =
      id == CU_STREAM_ATTRIBUTE_PRIORITY && own == on.stream->attributes.end();
  if (created_with) value->priority = on.stream->priority;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuStreamSetAttribute(CUstream handle, CUstreamAttrID id,
                                 const CUstreamAttrValue* value) {
  StreamCall on;
  if (const CUresult bad = on.find(handle)) return bad;
  if (!value || !of_streams(id)) return CUDA_ERROR_INVALID_VALUE;
  const DeviceLimits limits = limits_of(on.call.rt, on.stream->context->device);
  if (const CUresult bad = check_launch_attribute(limits, id, *value)) return bad;
  CUstreamAttrValue& own = on.stream->attributes[id] = *value;
  if (id == CU_STREAM_ATTRIBUTE_PRIORITY) own.priority = clamp_priority(value->priority);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuStreamCopyAttributes(CUstream to, CUstream from) {
  StreamCall target;
  if (const CUresult bad = target.find(to)) return bad;
  const Stream* source = resolve_stream(target.call, from);
  if (!source) return CUDA_ERROR_INVALID_HANDLE;
  // "Both streams must belong to the same context."
  if (source->context != target.stream->context) return CUDA_ERROR_INVALID_HANDLE;
  target.stream->attributes = source->attributes;
  return CUDA_SUCCESS;
}
