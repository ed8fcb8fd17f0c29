// Of which CUDA version the driver is.
#pragma once

namespace softgpu {

// As 1000 * major + 10 * minor.
int cuda_version();

}  // namespace softgpu
