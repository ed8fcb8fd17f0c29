// Lines of the log, as NVIDIA's program writes them.
#pragma once

#include <string>

namespace tandem::softgpu::mps {

// To stdout. `who`: Control, or Other: a server that is not up yet.
void write_log(const char* who, const std::string& text);

}  // namespace tandem::softgpu::mps
