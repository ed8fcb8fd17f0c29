// What the mangled name of a function says about its parameters.
//
// The grammar is that of the Itanium C++ ABI, section 5.1 "External Names (a.k.a. Mangling)", as
// far as names of kernels use it. Names that contain expressions are not understood, and yield
// nothing.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tandem::dag {

struct ParameterType {
  bool is_pointer = false;  // or a reference
  bool to_const = false;    // what it points to is const
  // What it points to contains no pointers: a builtin type, or one of CUDA's vectors.
  bool to_plain = false;
};

// Returns the types of the parameters in order. False: the name is not mangled, or not understood;
// then `out` is empty. A parameter pack ends the list and sets `is_open`.
bool parameters_in(std::string_view name, std::vector<ParameterType>* out, bool* is_open);

// CUDA's vectors and small floats: structures, but made of numbers.
bool is_cuda_number(std::string_view name);

}  // namespace tandem::dag
