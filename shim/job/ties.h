// What ties this process to others, for the daemon: things on the GPU that it shares with them, and
// the GPUs that it uses besides its first. Collected for the process; the helper thread reports
// them on each channel.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace tandem::shim::ties {

// The process has a handle whose bytes are the same in every process that has it (CUDA IPC,
// fabric).
void share_handle(const void* handle, size_t bytes);

// The process exported something as this descriptor, or imported what another one exported.
// Descriptors of the real driver all have the same inode, so the exporter's pid travels with them:
// as the owner of the open file, which nothing else uses while the file has no O_ASYNC.
void share_exported(int fd);
void share_imported(int fd);

// The process has work on this device. The first device is the one in HELLO and needs no report.
void set_first_device(CUdevice device);
void use_device(CUdevice device);

// What was reported on one channel.
struct Told {
  uint32_t keys = 0;
  uint64_t devices = 0;
};
// Helper thread. Reports what is new, if the daemon understands it; false when the socket is full.
bool tell(int socket, uint64_t features, Told* told);

// In a forked child, which shares nothing yet.
void start_afresh();

}  // namespace tandem::shim::ties
