// Access between devices. Any two different devices are capable of it; what a context has not
// enabled is hidden from its kernels, see reach.h.
#include "api.h"

namespace softgpu {
namespace {

bool exists(const Runtime& rt, CUdevice device) {
  return device >= 0 && static_cast<uint32_t>(device) < rt.device.device_count;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!exists(call.rt, device) || !exists(call.rt, peer)) return CUDA_ERROR_INVALID_DEVICE;
  if (!can) return CUDA_ERROR_INVALID_VALUE;
  *can = device != peer;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice source,
                                    CUdevice destination) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!exists(call.rt, source) || !exists(call.rt, destination) || source == destination) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED: *value = 1; return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:  // 0: the best one
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED: *value = 0; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

SOFTGPU_API cuCtxEnablePeerAccess(CUcontext handle, unsigned int flags) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto* peer = checked<Context>(call.rt.contexts, handle);
  if (!peer || peer == call.context) return CUDA_ERROR_INVALID_CONTEXT;
  if (peer->device == call.context->device) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  const bool fresh = call.context->peers.insert(peer->number).second;
  return fresh ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

SOFTGPU_API cuCtxDisablePeerAccess(CUcontext handle) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  const auto* peer = checked<Context>(call.rt.contexts, handle);
  if (!peer) return CUDA_ERROR_INVALID_CONTEXT;
  const bool was = call.context->peers.erase(peer->number) > 0;
  return was ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}
