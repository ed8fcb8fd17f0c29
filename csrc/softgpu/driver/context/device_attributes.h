// The table of device attributes: one row per attribute, for every profile.
#pragma once

#include <cuda.h>

#include "protocol.h"

namespace softgpu {

struct AttributeSource {
  const tandem::softgpu::DeviceInfo& info;
  int device;
  bool mps;
};
// Returns false for a number that is no attribute in cuda.h.
bool device_attribute(const AttributeSource& source, int attribute, int* value);

}  // namespace softgpu
