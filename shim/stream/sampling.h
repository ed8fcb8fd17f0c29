// The parameters of launches, recorded while the daemon asks for a sample.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "channel.h"
#include "shm_layout.h"

namespace tandem::shim {

// In the form in which cuLaunchKernel gets them.
struct LaunchArguments {
  CUfunction function = nullptr;
  void** parameters = nullptr;
  void** extra = nullptr;
};

inline bool is_sampling(const Channel& channel) {
  return channel.command->gate.flags.load(std::memory_order_relaxed) & shm::kFlagSample;
}

// Records a launch that the driver took. Returns its number in the sample; 0 = not recorded:
// another thread is writing, or the driver does not say what the parameters are.
uint32_t sample_launch(Channel& channel, const LaunchArguments& launch);

}  // namespace tandem::shim
