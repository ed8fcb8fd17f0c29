// ELF images: our kernel libraries, NVIDIA's cubins, and what cuLinkComplete made.
#pragma once

#include "image.h"

namespace softgpu {

inline constexpr uint16_t kMachineCuda = 190;  // EM_CUDA
inline constexpr char kLinkedSection[] = ".tandem_linked";

void inspect_elf(Bytes given, Image* image);

}  // namespace softgpu
