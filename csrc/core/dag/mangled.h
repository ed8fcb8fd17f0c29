// What the mangled name of a function says of its parameters.
//
// The grammar is that of the Itanium C++ ABI, section 5.1 "External Names (a.k.a. Mangling)", as far as
// names of kernels use it. Names with expressions in them are not understood, and then nothing is said.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem::dag {

struct ParameterType {
  bool is_pointer = false;  // or a reference
  bool to_const = false;    // what it points to is const
  bool to_plain = false;    // what it points to holds no pointers: a builtin type, or a vector of CUDA's
};

// The types of the parameters in order. False: the name is not mangled, or not understood; `out` is empty
// then. A parameter pack ends the list, with `is_open`.
bool parameters_in(std::string_view name, std::vector<ParameterType>* out, bool* is_open);

// CUDA's vectors and small floats: structures, but of numbers.
bool is_cuda_number(std::string_view name);

}  // namespace tandem::dag
