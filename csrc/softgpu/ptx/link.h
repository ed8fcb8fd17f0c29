// Links several modules into one: an `.extern` declaration takes another module's definition.
#pragma once

#include <vector>

#include "ast.h"

namespace softgpu::ptx {

// Throws Invalid if two modules define the same name. A name that none defines stays external.
ast::Module link(std::vector<ast::Module> modules);

// Whether the module refers to variables or functions that it does not define itself.
bool needs_others(const ast::Module& module);

}  // namespace softgpu::ptx
