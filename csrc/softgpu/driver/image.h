// What can be learnt from the bytes of a module image, without running any of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace softgpu {

enum class ImageKind { kKernelLibrary, kCubin, kPtx, kFatbin, kUnknown };

struct Image {
  ImageKind kind = ImageKind::kUnknown;
  size_t bytes = 0;                   // of the ELF image
  uint64_t entries_offset = 0;        // of .tandem_kernels from the load address
  uint64_t entries_bytes = 0;
  std::vector<std::string> kernels;   // names, where the format shows them (PTX, cubin)
};

// `image` is as long as it says itself: that is all cuModuleLoadData is told.
Image inspect_image(const void* image);

}  // namespace softgpu
