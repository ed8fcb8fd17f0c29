// CUDA arrays and mipmapped arrays: memory whose layout is up to the driver. Here they are rows
// without gaps, which programs cannot see. Protected by Runtime::mutex. Programs cannot address
// their bytes, so they are not in Runtime::ranges.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "runtime.h"

namespace softgpu {

struct ArrayStorage {
  char* data = nullptr;
  size_t bytes = 0;
  uint64_t allocation = 0;  // number in the ledger
};

struct Array {
  Context* context;
  CUDA_ARRAY3D_DESCRIPTOR shape;  // as requested
  size_t element_bytes;
  char* data;
  ArrayStorage own{};  // empty for a level of a mipmapped array, which has the storage

  size_t row_bytes() const { return shape.Width * element_bytes; }
  size_t rows() const { return std::max<size_t>(shape.Height, 1); }
  size_t slices() const { return std::max<size_t>(shape.Depth, 1); }  // or layers
  size_t slice_bytes() const { return rows() * row_bytes(); }
  size_t bytes() const { return slices() * slice_bytes(); }
};

struct MipmappedArray {
  Context* context;
  std::vector<std::unique_ptr<Array>> levels;
  ArrayStorage own;
};

// Call this only when the context has no work left.
void free_arrays_of(Runtime& rt, const Context* context);

}  // namespace softgpu
