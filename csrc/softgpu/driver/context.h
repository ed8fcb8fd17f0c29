// What other files need of contexts beyond the handles.
#pragma once

#include "runtime.h"

namespace softgpu {

// The primary context of a device, made if need be; it is the caller's to release.
CUresult retain_primary(Call& call, int device, Context** out);
CUresult release_primary(Call& call, int device);

}  // namespace softgpu
