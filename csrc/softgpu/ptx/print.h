// Device-side printf: collected while kernels run, written when the program synchronises.
#pragma once

#include <string>

namespace softgpu::ptx {

bool anything_printed();
// To the process's stdout, whatever has been printed since.
void flush_printed();

}  // namespace softgpu::ptx
