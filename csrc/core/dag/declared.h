// Declared parameters of a kernel whose name does not tell them: `extern "C"`.
//
// The text is a C parameter list, such as "const float* from, float* to, int n". What matters is
// which parameters are pointers, whether to const, and whether the data they point to contains no
// pointers: arithmetic types, the fixed-width ones of <stdint.h>, CUDA's vectors and small floats.
// Other types are accepted under any name, except templates and pointers to functions or arrays.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "dag/mangled.h"

namespace tandem::dag {

inline constexpr size_t kLongestDeclaration = 4096;  // bytes

// Returns true if `out` has one type for each parameter. False: the parameter with index
// `out->size()`, or the list as a whole, was not understood.
bool parameters_declared(std::string_view text, std::vector<ParameterType>* out);

}  // namespace tandem::dag
