// Attributes of functions and kernels: what images say, what the program sets, what is allowed.
#pragma once

#include "device_limits.h"
#include "runtime.h"

namespace softgpu {

using AttributeMap = std::map<int, int>;

DeviceLimits limits_of(const Runtime& rt, int device);
// The value without an override: what the image and the device say.
CUresult default_attribute(const Function& function, const DeviceLimits& limits, uint32_t arch,
                           int attribute, int* value);
// Returns INVALID_VALUE for read-only attributes and values out of range.
CUresult check_attribute(const Function& function, const DeviceLimits& limits, int attribute,
                         int value);
// The value that launches use: cuFuncSetAttribute wins over cuKernelSetAttribute over the default.
CUresult effective_attribute(const Runtime& rt, const Function& function, int attribute,
                             int* value);

}  // namespace softgpu
