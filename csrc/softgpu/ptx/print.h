// Device-side printf: output is collected while kernels run and written when the program
// synchronises.
#pragma once

#include <string>

namespace softgpu::ptx {

bool anything_printed();
// Writes to the process's stdout whatever has been printed since the last flush.
void flush_printed();

}  // namespace softgpu::ptx
