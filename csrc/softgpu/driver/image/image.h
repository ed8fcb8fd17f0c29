// What can be learnt from the bytes of a module image, without running any of it.
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
  CUresult error = CUDA_ERROR_INVALID_IMAGE;  // kBroken: what the load call answers
  std::string problem;                        // kBroken: for the error log
  Bytes bytes;                                // as long as the image says it is
  uint64_t entries_offset = 0;                // of .tandem_kernels from the load address
  uint64_t entries_bytes = 0;
  Bytes linked;                      // kLinked: the inputs, see link_image.h
  uint32_t arch = 0;                 // cubin and PTX: 90 for sm_90; 0 where the image is silent
  std::vector<ImageKernel> kernels;  // where the format shows them (PTX, cubin)
  std::string embedded_ptx;          // what a cubin with line information was made of
};

// `given` may go on behind the image.
Image inspect_image(Bytes given);

}  // namespace softgpu
