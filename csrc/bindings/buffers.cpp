// What launches touch, as Python sees it.
#include <pybind11/stl.h>

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings.h"
#include "dag/parameters.h"
#include "signatures.h"

namespace tandem::bindings {
namespace {

namespace py = pybind11;
using dag::Allocations;
using Layout = std::vector<std::pair<uint32_t, uint32_t>>;  // offset and bytes

py::object holding(const Allocations& allocations, uint64_t address) {
  const dag::Allocation* found = dag::holding(allocations.known(), address);
  return found ? py::object(py::make_tuple(found->base, found->bytes)) : py::none();
}

// What is known about a kernel before any launch of it.
class Kernel {
 public:
  Kernel(std::string_view name, const Layout& parameters, const Signature* declared)
      : signature_(declared ? std::make_optional(declared->parameters)
                            : dag::signature_of(name, parameters.size())) {
    for (const auto& [offset, bytes] : parameters)
      layout_.push_back(uint64_t{offset} << 32 | bytes);
  }

  dag::Touched touched(const std::vector<uint64_t>& words, bool is_cut,
                       const Allocations& allocations) const {
    return dag::touched_by({layout_.data(), layout_.size(), words.data(), words.size(), is_cut},
                           signature_ ? &*signature_ : nullptr, allocations.known());
  }

 private:
  std::optional<std::vector<dag::ParameterType>> signature_;
  std::vector<uint64_t> layout_;
};

// Returns the accesses, and whether these are all.
py::tuple touched_by(const Allocations& allocations, const Kernel& kernel,
                     const std::vector<uint64_t>& words, bool is_cut) {
  const dag::Touched touched = kernel.touched(words, is_cut, allocations);
  const std::vector<dag::Access> found = dag::accesses_of(touched);
  py::tuple accesses(found.size());
  for (size_t i = 0; i < found.size(); ++i)
    accesses[i] = py::make_tuple(found[i].address, found[i].bytes, found[i].is_const);
  return py::make_tuple(accesses, touched.coverage == dag::Coverage::kAll);
}

}  // namespace

void add_buffers(py::module_& module) {
  using py::arg;
  py::class_<Kernel>(module, "Kernel", py::is_final())
      .def(py::init<std::string_view, const Layout&, const Signature*>(), arg("name"),
           arg("parameters"), py::kw_only(), arg("declared") = nullptr);
  py::class_<Allocations>(module, "Allocations", py::is_final())
      .def(py::init<>())
      .def(
          "add", [](Allocations& a, uint64_t base, uint64_t bytes) { a.add({base, bytes}); },
          arg("address"), arg("size_bytes"))
      .def("remove", &Allocations::remove, arg("address"))
      .def("holding", &holding, arg("address"))
      .def("touched_by", &touched_by, arg("kernel"), arg("words"), py::kw_only(), arg("is_cut"));
}

}  // namespace tandem::bindings
