// Which arrays can exist: formats, extents and flags.
#pragma once

#include <cuda.h>

#include "protocol.h"

namespace softgpu {

// INVALID_VALUE for shapes that no device has, NOT_SUPPORTED for those that only this one lacks.
CUresult check_array_shape(const tandem::softgpu::DeviceInfo& device,
                           const CUDA_ARRAY3D_DESCRIPTOR& shape, bool mipmapped);
// The shape must have passed the check.
size_t array_element_bytes(const CUDA_ARRAY3D_DESCRIPTOR& shape);
// 1 + floor(log2(the longest side)).
unsigned most_mipmap_levels(const CUDA_ARRAY3D_DESCRIPTOR& shape);
CUDA_ARRAY3D_DESCRIPTOR mipmap_level_shape(CUDA_ARRAY3D_DESCRIPTOR shape, unsigned level);

}  // namespace softgpu
