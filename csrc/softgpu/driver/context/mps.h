// A process as a client of MPS: whether it is one, and which limits it then has.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>

#include "mps_settings.h"

namespace softgpu {

struct MpsMembership {
  bool member = false;  // of a server; otherwise limits matter only on a device in `mps` mode
  uint32_t server = 0;  // the device process knows it by this
  uint32_t priority = 0;
  double percent = 100;  // of each device's SMs
  tandem::softgpu::MpsMemoryLimits memory;
  std::string devices;  // comma-separated names of the server's devices
  int control_fd = -1;  // open as long as the process is a client
};

// Asks the control program in the pipe directory, if one runs there, for a server and waits until
// it is up. Otherwise fills in what the environment asks for.
CUresult look_for_mps(MpsMembership* membership);

// Sends the first message on a fresh connection to the device process and reads the answer.
CUresult join_mps(int fd, const MpsMembership& membership);

}  // namespace softgpu
