// The CUDA version that the driver reports.
#pragma once

namespace softgpu {

// Returns 1000 * major + 10 * minor.
int cuda_version();

}  // namespace softgpu
