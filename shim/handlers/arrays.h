// CUDA arrays.
#pragma once

#include <cuda.h>

#include "array_bytes.h"
#include "driver.h"
#include "handlers/counted.h"

namespace tandem::shim::handlers {

template <class Call, class Shape>
CUresult create_array(CUarray* out, const Shape* shape) {
  return counted(holdings::Kind::kArray, out, shape ? array_bytes(as_3d(*shape)) : 0,
                 [&] { return Call::real(out, shape); });
}

template <class Call>
CUresult create_mipmapped(CUmipmappedArray* out, const CUDA_ARRAY3D_DESCRIPTOR* shape,
                          unsigned levels) {
  return counted(holdings::Kind::kMipmapped, out, shape ? mipmapped_bytes(*shape, levels) : 0,
                 [&] { return Call::real(out, shape, levels); });
}

template <class Call>
CUresult destroy_array(CUarray array) {
  if (Channel* channel = managed_channel()) before_block(*channel);  // may wait for the device
  return uncounted(holdings::Kind::kArray, array, [&] { return Call::real(array); });
}
template <class Call>
CUresult destroy_mipmapped(CUmipmappedArray array) {
  if (Channel* channel = managed_channel()) before_block(*channel);
  return uncounted(holdings::Kind::kMipmapped, array, [&] { return Call::real(array); });
}

}  // namespace tandem::shim::handlers
