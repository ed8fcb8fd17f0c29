// Declared signatures of kernels, as Python sees them.
#include "signatures.h"

#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "bindings.h"
#include "dag/declared.h"

namespace tandem::bindings {
namespace {

namespace py = pybind11;
using Layout = std::vector<std::pair<uint32_t, uint32_t>>;  // offset and bytes

Signature parse(std::string_view text) {
  if (text.size() > dag::kLongestDeclaration) {
    throw py::value_error("a parameter list of " + std::to_string(text.size()) +
                          " bytes is longer than " + std::to_string(dag::kLongestDeclaration));
  }
  Signature signature;
  if (dag::parameters_declared(text, &signature.parameters)) return signature;
  throw py::value_error(
      "parameter " + std::to_string(signature.parameters.size() + 1) + " of '" + std::string(text) +
      "' is not understood; write a C parameter list such as 'const float*, int'");
}

// What the driver says about the kernel's parameters takes precedence over the declaration.
void check(const Signature& signature, const std::string& kernel, const Layout& layout) {
  const auto& declared = signature.parameters;
  if (declared.size() != layout.size()) {
    throw py::value_error("kernel '" + kernel + "' takes " + std::to_string(layout.size()) +
                          " parameters and is declared with " + std::to_string(declared.size()));
  }
  for (size_t i = 0; i < layout.size(); ++i) {
    if (!declared[i].is_pointer || layout[i].second == sizeof(uint64_t)) continue;
    throw py::value_error("parameter " + std::to_string(i + 1) + " of kernel '" + kernel +
                          "' has " + std::to_string(layout[i].second) +
                          " bytes and is declared as a pointer");
  }
}

}  // namespace

void add_signatures(py::module_& module) {
  py::class_<Signature>(module, "Signature", py::is_final())
      .def(py::init(&parse), py::arg("text"))
      .def("check", &check, py::arg("kernel"), py::arg("parameters"));
}

}  // namespace tandem::bindings
