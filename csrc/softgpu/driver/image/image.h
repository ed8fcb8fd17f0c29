// What the bytes of a module image reveal without running any of it.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

#include "bytes.h"
#include "kernel_traits.h"

namespace softgpu {

enum class ImageKind { kKernelLibrary, kCubin, kLinked, kPtx, kFatbin, kFatbinWrapper, kBroken };

struct ImageKernel {
  std::string name;
  KernelTraits traits;
};

struct Image {
  ImageKind kind = ImageKind::kBroken;
  CUresult error = CUDA_ERROR_INVALID_IMAGE;  // kBroken: result of the load call
  std::string problem;                        // kBroken: for the error log
  Bytes bytes;                                // as long as the image says it is
  uint64_t entries_offset = 0;                // of .tandem_kernels from the load address
  uint64_t entries_bytes = 0;
  Bytes linked;                      // kLinked: the inputs, see link_image.h
  uint32_t arch = 0;                 // cubin and PTX: 90 for sm_90; 0 if the image does not say
  std::vector<ImageKernel> kernels;  // if the format shows them (PTX, cubin)
  std::string embedded_ptx;          // the PTX that a cubin with line information was made from
};

// `given` may extend beyond the image.
Image inspect_image(Bytes given);

}  // namespace softgpu
