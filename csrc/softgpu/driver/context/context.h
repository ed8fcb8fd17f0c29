// What other files need of contexts beyond the handles.
#pragma once

#include "runtime.h"

namespace softgpu {

// The primary context of a device, made if need be; it is the caller's to release.
CUresult retain_primary(Call& call, int device, Context** out);
CUresult release_primary(Call& call, int device);

// At most one scheduling flag, and none that cuda.h does not know.
bool known_context_flags(unsigned flags);

// The calling thread's; null without one.
Context* current();

// How many SMs a context with that share has: the device process rounds the same way.
constexpr uint32_t sms_of_percent(uint32_t sms, uint32_t percent) {
  const uint32_t share = (sms * percent + 50) / 100;
  return share > 0 ? share : 1;
}

}  // namespace softgpu
