// Finds the device process, or starts it.
#pragma once

#include <cstdint>
#include <string>

#include "protocol.h"

namespace softgpu {

// TANDEM_SOFTGPU_DIR, or else a subdirectory of the runtime directory that all parts of Tandem use.
std::string device_directory();

// Returns a connected SOCK_SEQPACKET socket, or -1 if nobody listens there.
int connect_socket(const std::string& path);

// Connects and shakes hands. Returns the socket, or -1 with one line on stderr if there is no
// device process and none can be started. Never blocks for longer than about 20 s.
int connect_to_device(uint32_t hello_flags, bool may_start, tandem::softgpu::Welcome* welcome);

}  // namespace softgpu
