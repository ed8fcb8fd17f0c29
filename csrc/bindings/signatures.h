// Declared parameters of a kernel, as Python sees them.
#pragma once

#include <vector>

#include "dag/mangled.h"

namespace tandem::bindings {

struct Signature {
  std::vector<dag::ParameterType> parameters;
};

}  // namespace tandem::bindings
