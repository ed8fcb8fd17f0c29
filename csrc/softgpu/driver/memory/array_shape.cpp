#include "array_shape.h"

#include <algorithm>
#include <initializer_list>

#include "device_attributes.h"

namespace softgpu {
namespace {

using tandem::softgpu::DeviceInfo;
using Shape = CUDA_ARRAY3D_DESCRIPTOR;

struct Format {
  size_t channel_bytes;
  unsigned channels;  // 0: 1, 2 or 4, as the program specifies
};

// channel_bytes is 0 for a compressed or YUV format.
Format format_of(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return {1, 0};
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return {2, 0};
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return {4, 0};
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X1: return {1, 1};
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X2: return {1, 2};
    case CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_SNORM_INT8X4: return {1, 4};
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X1: return {2, 1};
    case CU_AD_FORMAT_UNORM_INT16X2:
    case CU_AD_FORMAT_SNORM_INT16X2: return {2, 2};
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X4: return {2, 4};
    default: return {0, 0};
  }
}

// The numbers of the compressed, YUV and packed formats in cuda.h.
bool is_other_format(unsigned format) {
  return (format >= 0x50 && format <= 0x5e) || (format >= 0x91 && format <= 0xb5);
}

CUresult check_format(const Shape& shape) {
  const Format format = format_of(shape.Format);
  const unsigned channels = shape.NumChannels;
  if (format.channel_bytes == 0) {
    return is_other_format(shape.Format) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  }
  const bool fits = format.channels ? channels == format.channels
                                    : channels == 1 || channels == 2 || channels == 4;
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Device attributes that limit the extents; 0: no attribute limits this extent.
struct Bounds {
  int width, height, depth;
};
#define MAXIMUM(name) CU_DEVICE_ATTRIBUTE_MAXIMUM_##name

bool within(const DeviceInfo& device, const Shape& shape, const Bounds& bounds) {
  const auto fits = [&](size_t extent, int attribute) {
    int most = 0;
    return attribute == 0 || (device_attribute({device, 0, false}, attribute, &most) &&
                              extent <= static_cast<size_t>(most));
  };
  return fits(shape.Width, bounds.width) && fits(shape.Height, bounds.height) &&
         fits(shape.Depth, bounds.depth);
}

constexpr Bounds k3d{MAXIMUM(TEXTURE3D_WIDTH), MAXIMUM(TEXTURE3D_HEIGHT), MAXIMUM(TEXTURE3D_DEPTH)};
constexpr Bounds k3dAlternate{MAXIMUM(TEXTURE3D_WIDTH_ALTERNATE),
                              MAXIMUM(TEXTURE3D_HEIGHT_ALTERNATE),
                              MAXIMUM(TEXTURE3D_DEPTH_ALTERNATE)};

struct KindBounds {
  Bounds always, surface;
};

KindBounds bounds_of(const Shape& shape, bool mipmapped) {
  const bool layered = (shape.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  if (shape.Flags & CUDA_ARRAY3D_CUBEMAP) {
    if (!layered) {
      return {{MAXIMUM(TEXTURECUBEMAP_WIDTH), 0, 0}, {MAXIMUM(SURFACECUBEMAP_WIDTH), 0, 0}};
    }
    return {{MAXIMUM(TEXTURECUBEMAP_LAYERED_WIDTH), 0, MAXIMUM(TEXTURECUBEMAP_LAYERED_LAYERS)},
            {MAXIMUM(SURFACECUBEMAP_LAYERED_WIDTH), 0, MAXIMUM(SURFACECUBEMAP_LAYERED_LAYERS)}};
  }
  if (layered && shape.Height == 0) {
    return {{MAXIMUM(TEXTURE1D_LAYERED_WIDTH), 0, MAXIMUM(TEXTURE1D_LAYERED_LAYERS)},
            {MAXIMUM(SURFACE1D_LAYERED_WIDTH), 0, MAXIMUM(SURFACE1D_LAYERED_LAYERS)}};
  }
  if (layered) {
    return {{MAXIMUM(TEXTURE2D_LAYERED_WIDTH), MAXIMUM(TEXTURE2D_LAYERED_HEIGHT),
             MAXIMUM(TEXTURE2D_LAYERED_LAYERS)},
            {MAXIMUM(SURFACE2D_LAYERED_WIDTH), MAXIMUM(SURFACE2D_LAYERED_HEIGHT),
             MAXIMUM(SURFACE2D_LAYERED_LAYERS)}};
  }
  if (shape.Depth > 0) {
    return {k3d, {MAXIMUM(SURFACE3D_WIDTH), MAXIMUM(SURFACE3D_HEIGHT), MAXIMUM(SURFACE3D_DEPTH)}};
  }
  if (shape.Height == 0) {
    return {{mipmapped ? MAXIMUM(TEXTURE1D_MIPMAPPED_WIDTH) : MAXIMUM(TEXTURE1D_WIDTH), 0, 0},
            {MAXIMUM(SURFACE1D_WIDTH), 0, 0}};
  }
  const Bounds surface{MAXIMUM(SURFACE2D_WIDTH), MAXIMUM(SURFACE2D_HEIGHT), 0};
  if (mipmapped) {
    return {{MAXIMUM(TEXTURE2D_MIPMAPPED_WIDTH), MAXIMUM(TEXTURE2D_MIPMAPPED_HEIGHT), 0}, surface};
  }
  return {{MAXIMUM(TEXTURE2D_WIDTH), MAXIMUM(TEXTURE2D_HEIGHT), 0}, surface};
}

// Whether the extents fit the kind of array that the flags specify.
bool consistent(const Shape& shape) {
  if (shape.Width == 0) return false;
  const bool layered = (shape.Flags & CUDA_ARRAY3D_LAYERED) != 0;
  if (shape.Flags & CUDA_ARRAY3D_CUBEMAP) {
    if (shape.Width != shape.Height) return false;
    if (layered ? shape.Depth == 0 || shape.Depth % 6 != 0 : shape.Depth != 6) return false;
  } else if (layered) {
    if (shape.Depth == 0) return false;
  } else if (shape.Height == 0 && shape.Depth != 0) {
    return false;
  }
  const bool gather = (shape.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) != 0;
  return !gather || (shape.Height > 0 && shape.Depth == 0 && !layered);
}

CUresult check_flags(unsigned flags) {
  constexpr unsigned kKnown = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                              CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER;
  constexpr unsigned kElsewhere = CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT |
                                  CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING |
                                  0x100;  // video coding, which older headers do not name
  if (flags & ~(kKnown | kElsewhere)) return CUDA_ERROR_INVALID_VALUE;
  return flags & kElsewhere ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

}  // namespace

CUresult check_array_shape(const DeviceInfo& device, const Shape& shape, bool mipmapped) {
  if (const CUresult bad = check_format(shape)) return bad;
  if (!consistent(shape)) return CUDA_ERROR_INVALID_VALUE;
  const KindBounds bounds = bounds_of(shape, mipmapped);
  const bool is_3d = bounds.always.width == k3d.width;
  bool fits =
      within(device, shape, bounds.always) || (is_3d && within(device, shape, k3dAlternate));
  if (shape.Flags & CUDA_ARRAY3D_SURFACE_LDST) fits = fits && within(device, shape, bounds.surface);
  if (shape.Flags & CUDA_ARRAY3D_TEXTURE_GATHER) {
    const Bounds gather{MAXIMUM(TEXTURE2D_GATHER_WIDTH), MAXIMUM(TEXTURE2D_GATHER_HEIGHT), 0};
    fits = fits && within(device, shape, gather);
  }
  return fits ? check_flags(shape.Flags) : CUDA_ERROR_INVALID_VALUE;
}
#undef MAXIMUM

size_t array_element_bytes(const Shape& shape) {
  return format_of(shape.Format).channel_bytes * shape.NumChannels;
}

static bool has_layers(const Shape& shape) {
  return (shape.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
}

unsigned most_mipmap_levels(const Shape& shape) {
  const size_t depth = has_layers(shape) ? 1 : shape.Depth;
  unsigned levels = 0;
  for (size_t side = std::max({shape.Width, shape.Height, depth}); side > 0; side /= 2) ++levels;
  return levels;
}

Shape mipmap_level_shape(Shape shape, unsigned level) {
  const auto shrink = [level](size_t* extent) {
    if (*extent > 0) *extent = std::max<size_t>(*extent >> level, 1);
  };
  shrink(&shape.Width);
  shrink(&shape.Height);
  if (!has_layers(shape)) shrink(&shape.Depth);
  return shape;
}

}  // namespace softgpu
