// PTX text -> Program, ready to run.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "program.h"

namespace softgpu::ptx {

// Throws Invalid, whose message names the line and the instruction.
std::unique_ptr<Program> load(std::string_view text);
// Links the texts, so that one may use what another defines.
std::unique_ptr<Program> load(const std::vector<std::string_view>& texts);

}  // namespace softgpu::ptx
