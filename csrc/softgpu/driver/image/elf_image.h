// ELF images: Tandem's kernel libraries, NVIDIA's cubins, and the output of cuLinkComplete.
#pragma once

#include "image.h"

namespace softgpu {

inline constexpr uint16_t kMachineCuda = 190;  // EM_CUDA
inline constexpr char kLinkedSection[] = ".tandem_linked";

void inspect_elf(Bytes given, Image* image);
// Finds the contents of all sections with that name; returns false if the ELF is broken.
bool find_sections(Bytes elf, std::string_view name, std::vector<Bytes>* found);

}  // namespace softgpu
