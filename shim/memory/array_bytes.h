// Computes how many bytes CUDA arrays take. A driver may pad rows and tiles but tells nobody: its
// cuArrayGetMemoryRequirements answers only for arrays that have no memory of their own.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cstdint>

namespace tandem::shim {

// Bits per texel: an average for planar and subsampled formats, the largest for unknown ones.
constexpr uint32_t texel_bits(uint32_t format, uint32_t channels) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return 8 * channels;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return 16 * channels;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return 32 * channels;
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X1: return 8;
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X1: return 16;
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X4:
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X2: return 32;
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X4: return 64;
    case CU_AD_FORMAT_BC1_UNORM:
    case CU_AD_FORMAT_BC1_UNORM_SRGB:
    case CU_AD_FORMAT_BC4_UNORM:
    case CU_AD_FORMAT_BC4_SNORM: return 4;
    case CU_AD_FORMAT_BC2_UNORM:
    case CU_AD_FORMAT_BC2_UNORM_SRGB:
    case CU_AD_FORMAT_BC3_UNORM:
    case CU_AD_FORMAT_BC3_UNORM_SRGB:
    case CU_AD_FORMAT_BC5_UNORM:
    case CU_AD_FORMAT_BC5_SNORM:
    case CU_AD_FORMAT_BC6H_UF16:
    case CU_AD_FORMAT_BC6H_SF16:
    case CU_AD_FORMAT_BC7_UNORM:
    case CU_AD_FORMAT_BC7_UNORM_SRGB: return 8;
    case CU_AD_FORMAT_NV12: return 12;
    default: return 64;
  }
}

constexpr bool has_layers(uint32_t flags) {
  return (flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
}

// Sparse and deferred-mapping arrays use memory mapped from elsewhere, which counts there.
constexpr bool has_own_memory(uint32_t flags) {
  return (flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)) == 0;
}

inline uint64_t product(uint64_t a, uint64_t b) {
  uint64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX / 64 : result;
}

// An extent of zero is a dimension that the array does not have.
inline uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR& shape) {
  if (!has_own_memory(shape.Flags)) return 0;
  const uint64_t texels = product(product(shape.Width, std::max<uint64_t>(shape.Height, 1)),
                                  std::max<uint64_t>(shape.Depth, 1));
  const uint32_t bits = texel_bits(shape.Format, shape.NumChannels);
  return bits % 8 == 0 ? product(texels, bits / 8) : (product(texels, bits) + 7) / 8;
}

inline uint64_t mipmapped_bytes(CUDA_ARRAY3D_DESCRIPTOR shape, uint32_t wanted_levels) {
  uint64_t bytes = 0;
  const bool layered = has_layers(shape.Flags);
  for (uint32_t level = 0; level < std::max(wanted_levels, 1u); ++level) {
    const uint64_t next = array_bytes(shape);
    if (__builtin_add_overflow(bytes, next, &bytes)) return UINT64_MAX;
    if (shape.Width <= 1 && shape.Height <= 1 && (layered || shape.Depth <= 1)) break;
    shape.Width = std::max<size_t>(shape.Width / 2, 1);
    if (shape.Height) shape.Height = std::max<size_t>(shape.Height / 2, 1);
    if (shape.Depth && !layered) shape.Depth = std::max<size_t>(shape.Depth / 2, 1);
  }
  return bytes;
}

inline CUDA_ARRAY3D_DESCRIPTOR as_3d(const CUDA_ARRAY3D_DESCRIPTOR& shape) { return shape; }
inline CUDA_ARRAY3D_DESCRIPTOR as_3d(const CUDA_ARRAY_DESCRIPTOR& shape) {
  return {shape.Width, shape.Height, 0, shape.Format, shape.NumChannels, 0};
}
inline CUDA_ARRAY3D_DESCRIPTOR as_3d(const CUDA_ARRAY3D_DESCRIPTOR_v1& shape) {
  return {shape.Width, shape.Height, shape.Depth, shape.Format, shape.NumChannels, shape.Flags};
}
inline CUDA_ARRAY3D_DESCRIPTOR as_3d(const CUDA_ARRAY_DESCRIPTOR_v1& shape) {
  return {shape.Width, shape.Height, 0, shape.Format, shape.NumChannels, 0};
}

}  // namespace tandem::shim
