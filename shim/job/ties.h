// What binds this process to others, for the daemon: things on the GPU that it shares with them, and
// the GPUs it uses beside its first. Known to the process; told by the helper thread on each channel.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace tandem::shim::ties {

// The process has a handle whose bytes are the same in every process that has it (CUDA IPC, fabric).
void share_handle(const void* handle, size_t bytes);

// It exported something as this descriptor, or imported what somebody exported. Descriptors of the
// real driver all have the same inode, so the exporter's pid goes with them: as the owner of the open
// file, which nothing else makes use of while it has no O_ASYNC.
void share_exported(int fd);
void share_imported(int fd);

// It has work on this device. The first one is that of HELLO, and needs no telling.
void set_first_device(CUdevice device);
void use_device(CUdevice device);

// What was said on one channel.
struct Told {
  uint32_t keys = 0;
  uint64_t devices = 0;
};
// Helper thread. Says what is new, if the daemon understands it; false when the socket is full.
bool tell(int socket, uint64_t features, Told* told);

// Fork: the child shares nothing yet.
void start_afresh();

}  // namespace tandem::shim::ties
