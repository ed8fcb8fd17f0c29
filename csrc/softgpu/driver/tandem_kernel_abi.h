// The driver's view of tandem_kernel.h: its ABI structs, without the macros that make a .cu
// compile.
#pragma once

#include <cstdint>

namespace tandem {

inline constexpr uint32_t kKernelAbi = 1;
struct KernelLaunch {
  uint32_t grid[3], block[3];
  const char* params;
  char* dynamic_shared;
  const uint32_t* sms;
  uint32_t sm_count;
  uint32_t shared_bytes;
  uint32_t cooperative;
  uint32_t cluster[3];
  uint32_t* status;
};
struct alignas(64) KernelEntry {
  uint32_t abi, param_count;
  const void* function;
  const uint32_t *param_offset, *param_size;
  void (*run)(const KernelLaunch*);
  void (*cost)(const KernelLaunch*, double* flops_per_block, double* bytes_per_block);
};
static_assert(sizeof(KernelEntry) == 64, "tandem_kernel.h has the same");

}  // namespace tandem
