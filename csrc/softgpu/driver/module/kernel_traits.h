// What an image says of a kernel before it runs: the figures behind CU_FUNC_ATTRIBUTE_*.
#pragma once

#include <cstdint>

namespace softgpu {

struct KernelTraits {
  uint32_t max_threads = 1024;    // a block; from __launch_bounds__ where it was given
  uint32_t registers = 32;        // a thread
  uint32_t shared_bytes = 0;      // static, a block
  uint32_t constant_bytes = 0;    // of the user's
  uint32_t local_bytes = 0;       // a thread
  uint32_t ptx_version = 0;       // 90 for compute_90; 0: that of the device
  uint32_t binary_version = 0;    // 90 for sm_90; 0: that of the device
  uint32_t required_block[3] = {};    // .reqntid; 0 = free
  uint32_t required_cluster[3] = {};  // 0 = free
};

}  // namespace softgpu
