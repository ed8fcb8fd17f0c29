// A process as a client of MPS: whether it is one, and what limits it then has.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>

#include "mps_settings.h"

namespace softgpu {

struct MpsMembership {
  bool member = false;  // of a server; else limits matter only to a device in `mps` mode
  uint32_t server = 0;  // the device process knows it by this
  uint32_t priority = 0;
  double percent = 100;  // of each device's SMs
  tandem::softgpu::MpsMemoryLimits memory;
  std::string devices;  // names of those that the server has, with commas between
  int control_fd = -1;  // open as long as the process is a client
};

// Asks the control program in the pipe directory for a server, if one runs there; else says what
// the environment asks for. Waits until a server is up.
CUresult look_for_mps(MpsMembership* membership);

// The first message on a fresh connection to the device process, and its answer.
CUresult join_mps(int fd, const MpsMembership& membership);

}  // namespace softgpu
