// Several modules -> one, in which what one of them declares `.extern` is what another defines.
#pragma once

#include <vector>

#include "ast.h"

namespace softgpu::ptx {

// Throws Invalid when two of them define the same name. What nobody defines stays external.
ast::Module link(std::vector<ast::Module> modules);

// Whether it names variables or functions that it does not define itself.
bool needs_others(const ast::Module& module);

}  // namespace softgpu::ptx
