// PTX text -> ast::Module.
#pragma once

#include <string_view>

#include "ast.h"

namespace softgpu::ptx {

// Throws Invalid, whose message names the line.
ast::Module parse(std::string_view text);

}  // namespace softgpu::ptx
