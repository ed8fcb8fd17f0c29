// Writes log lines in the format of NVIDIA's program.
#pragma once

#include <string>

namespace tandem::softgpu::mps {

// Writes to stdout. `who` is Control, or Other for a server that is not up yet.
void write_log(const char* who, const std::string& text);

}  // namespace tandem::softgpu::mps
