// What other files need from contexts beyond the handles.
#pragma once

#include "runtime.h"

namespace softgpu {

// Returns the primary context of a device, creating it if necessary; the caller must release it.
CUresult retain_primary(Call& call, int device, Context** out);
CUresult release_primary(Call& call, int device);

// Checks that there is at most one scheduling flag, and none that cuda.h does not know.
bool known_context_flags(unsigned flags);

// The calling thread's current context; null if there is none.
Context* current();

// How many SMs a context with that share has, rounded as in the device process.
constexpr uint32_t sms_of_percent(uint32_t sms, uint32_t percent) {
  const uint32_t share = (sms * percent + 50) / 100;
  return share > 0 ? share : 1;
}

}  // namespace softgpu
