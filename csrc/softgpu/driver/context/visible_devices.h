// CUDA_VISIBLE_DEVICES, by the rules of the CUDA programming guide and the MIG user guide.
#pragma once

#include <string>

#include "protocol.h"

namespace softgpu {

// GPU-<uuid>, of an instance MIG-<uuid>.
std::string name_of(const tandem::softgpu::DeviceInfo& device);

// Leaves in `welcome` what these names, with commas between, are of, in their order: what an MPS
// server has, among which its clients count.
void keep_devices(const std::string& names, tandem::softgpu::Welcome* welcome);

// Leaves in `welcome` the devices that the list shows, in its order; all of them without a list.
// An entry is an index, or GPU-<uuid>, MIG-<uuid> or the beginning of one; MIG instances also as
// MIG-GPU-<uuid>/<GPU instance>/<compute instance>. An entry that names nothing, more than one or
// what was named already hides those after it, and an empty list shows none. Indices count the devices
// that are in `welcome`; that of one with MIG means its first instance. CUDA sees one MIG instance at most, and then nothing else.
void show_visible_devices(const char* list, tandem::softgpu::Welcome* welcome);

}  // namespace softgpu
