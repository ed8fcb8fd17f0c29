// CUDA_VISIBLE_DEVICES, by the rules of the CUDA programming guide and the MIG user guide.
#pragma once

#include <string>

#include "protocol.h"

namespace softgpu {

// GPU-<uuid>, or MIG-<uuid> for an instance.
std::string name_of(const tandem::softgpu::DeviceInfo& device);

// Keeps in `welcome` only the devices with these comma-separated names, in their order: the devices
// of an MPS server, whose clients count among them.
void keep_devices(const std::string& names, tandem::softgpu::Welcome* welcome);

// Keeps in `welcome` only the devices that the list shows, in its order; without a list, all of
// them. An entry is an index, or GPU-<uuid>, MIG-<uuid> or the beginning of one; MIG instances also
// as MIG-GPU-<uuid>/<GPU instance>/<compute instance>. An entry that names no device, more than
// one, or one that was named already ends the list, and an empty list shows none. Indices count the
// devices in `welcome`; the index of a device with MIG means its first instance. CUDA sees at most
// one MIG instance, and then nothing else.
void show_visible_devices(const char* list, tandem::softgpu::Welcome* welcome);

}  // namespace softgpu
