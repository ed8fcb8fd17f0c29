// ELF images: our kernel libraries, NVIDIA's cubins, and what cuLinkComplete made.
#pragma once

#include "image.h"

namespace softgpu {

inline constexpr uint16_t kMachineCuda = 190;  // EM_CUDA
inline constexpr char kLinkedSection[] = ".tandem_linked";

void inspect_elf(Bytes given, Image* image);
// The contents of the sections of that name; false when the ELF is broken.
bool find_sections(Bytes elf, std::string_view name, std::vector<Bytes>* found);

}  // namespace softgpu
