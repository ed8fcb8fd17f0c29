// What a kernel's parameters are declared to be, as Python has it.
#pragma once

#include <vector>

#include "dag/mangled.h"

namespace tandem::bindings {

struct Signature {
  std::vector<dag::ParameterType> parameters;
};

}  // namespace tandem::bindings
