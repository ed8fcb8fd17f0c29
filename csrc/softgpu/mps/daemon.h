// The MPS control program as a daemon: its sockets, files and child processes.
#pragma once

#include <string>

namespace tandem::softgpu::mps {

std::string control_path();

// Runs until `quit`. In the background, the calling process returns once the daemon listens.
int run_daemon(bool in_background);

}  // namespace tandem::softgpu::mps
