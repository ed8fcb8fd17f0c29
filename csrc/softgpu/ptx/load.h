// PTX text -> Program, ready to run.
#pragma once

#include <memory>
#include <string_view>

#include "program.h"

namespace softgpu::ptx {

// Throws Invalid, whose words name the line and the instruction.
std::unique_ptr<Program> load(std::string_view text);

}  // namespace softgpu::ptx
