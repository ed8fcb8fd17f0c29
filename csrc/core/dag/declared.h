// What somebody declares a kernel's parameters to be, where its name does not say: `extern "C"`.
//
// The text is a C parameter list, such as "const float* from, float* to, int n". What counts is which
// parameters are pointers, whether to const, and whether what they lead to holds no pointers itself:
// arithmetic types, the fixed-width ones of <stdint.h>, vectors and small floats of CUDA. Other types are
// taken by any name that they have, but neither templates nor pointers to functions or arrays.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "dag/mangled.h"

namespace tandem::dag {

inline constexpr size_t kLongestDeclaration = 4096;  // bytes

// True: `out` has one type for each parameter. False: of the `out->size()`-th, from 0, or of the list
// as a whole nothing can be made.
bool parameters_declared(std::string_view text, std::vector<ParameterType>* out);

}  // namespace tandem::dag
