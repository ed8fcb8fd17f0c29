// What cuLinkComplete returns: an ELF of the CUDA machine whose section `.tandem_linked` holds the
// inputs, one after the other, each behind a LinkedInput and padded to eight bytes. It needs nothing
// from outside, so it may be stored and loaded by another process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bytes.h"

namespace softgpu {

// What a host object (`nvcc -c`) or an archive of them carries for devices: the fat binaries in their
// sections, or the input itself where it is an image. False when it is broken.
bool find_device_code(Bytes input, std::vector<Bytes>* images);

std::string make_linked_image(const std::vector<std::string>& inputs, uint32_t arch);
// False when the section is broken.
bool read_linked_inputs(Bytes section, std::vector<Bytes>* inputs);

}  // namespace softgpu
