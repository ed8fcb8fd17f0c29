// What an image says about a kernel before it runs: the values behind CU_FUNC_ATTRIBUTE_*.
#pragma once

#include <cstdint>

namespace softgpu {

struct KernelTraits {
  uint32_t max_threads = 1024;        // per block; from __launch_bounds__ if given
  uint32_t registers = 32;            // per thread
  uint32_t shared_bytes = 0;          // static, per block
  uint32_t constant_bytes = 0;        // of the user's constants
  uint32_t local_bytes = 0;           // per thread
  uint32_t ptx_version = 0;           // 90 for compute_90; 0: as the device
  uint32_t binary_version = 0;        // 90 for sm_90; 0: as the device
  uint32_t required_block[3] = {};    // .reqntid; 0: not restricted
  uint32_t required_cluster[3] = {};  // 0: not restricted
};

}  // namespace softgpu
