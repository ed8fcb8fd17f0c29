// Parameter lists as people write them.
#include "dag/declared.h"

#include <string>

#include "check.h"

namespace {

using namespace tandem::dag;

// As in test_parameters.cpp: P a pointer, C a pointer to const, + pointing to plain data, - any
// other.
std::string types_in(const std::string& text) {
  std::vector<ParameterType> found;
  if (!parameters_declared(text, &found)) return "? " + std::to_string(found.size());
  std::string out;
  for (const ParameterType& type : found) {
    out += !type.is_pointer ? "-" : type.to_const ? "C" : "P";
    if (type.to_plain) out += "+";
  }
  return out;
}

}  // namespace

#define CHECK_LIST(text, types) CHECK(types_in(text) == (types))

TEST(pointers_and_what_they_lead_to_are_told) {
  CHECK_LIST("const float* from, float* to, int n", "C+P+-");
  CHECK_LIST("float const *__restrict__ from,float*restrict to", "C+P+");
  CHECK_LIST("float* const to, const float* const from", "P+C+");  // the pointer itself is const
  CHECK_LIST("const unsigned long long *x, unsigned n", "C+-");
  CHECK_LIST("const uint8_t*, __half *, const float4 * volatile", "C+P+C+");
  CHECK_LIST("float x[], const int y[ 4 ], double z[2][2]", "P+C+P");
}

TEST(what_may_hold_pointers_itself_is_not_plain) {
  CHECK_LIST("const void* x, void *y", "CP");
  CHECK_LIST("const float** x, float* const* y", "PC");
  CHECK_LIST("const struct Node* x, at::Tensor* y, Pair by_value", "CP-");
}

TEST(a_list_may_be_empty) {
  CHECK_LIST("", "");
  CHECK_LIST(" ", "");
  CHECK_LIST("void", "");
}

TEST(what_is_no_parameter_list_is_refused_and_its_parameter_named) {
  CHECK_LIST("int, ", "? 1");
  CHECK_LIST(",", "? 0");
  CHECK_LIST("*x", "? 0");
  CHECK_LIST("const", "? 0");
  CHECK_LIST("int a b", "? 0");
  CHECK_LIST("int, float x*", "? 1");
  CHECK_LIST("float, int 4x", "? 1");
  CHECK_LIST("int x[", "? 0");
  CHECK_LIST("int, void", "? 1");
  CHECK_LIST("std::vector<float> x", "? 0");
  CHECK_LIST("void (*call)(int)", "? 0");
  CHECK_LIST("...", "? 0");
  CHECK_LIST(std::string(kLongestDeclaration + 1, ' '), "? 0");
}
