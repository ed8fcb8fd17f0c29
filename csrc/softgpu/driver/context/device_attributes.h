// The table of device attributes: one row each, for every profile.
#pragma once

#include <cuda.h>

#include "protocol.h"

namespace softgpu {

struct AttributeSource {
  const tandem::softgpu::DeviceInfo& info;
  int device;
  bool mps;
};
// False for a number that is no attribute of the header.
bool device_attribute(const AttributeSource& source, int attribute, int* value);

}  // namespace softgpu
