// The output of cuLinkComplete: a CUDA ELF whose section `.tandem_linked` holds the inputs one
// after the other, each behind a LinkedInput and padded to eight bytes. It is self-contained, so it
// may be stored and loaded by another process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bytes.h"

namespace softgpu {

// Finds the device code in a host object (`nvcc -c`) or an archive of them: the fat binaries in
// their sections, or the input itself if it is an image. Returns false if the input is broken.
bool find_device_code(Bytes input, std::vector<Bytes>* images);

std::string make_linked_image(const std::vector<std::string>& inputs, uint32_t arch);
// Returns false if the section is broken.
bool read_linked_inputs(Bytes section, std::vector<Bytes>* inputs);

}  // namespace softgpu
