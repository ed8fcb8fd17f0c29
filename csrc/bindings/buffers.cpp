// What launches touch, as Python sees it.
#include <pybind11/stl.h>

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

// Accesses, and whether they are all.
py::tuple touched_by(const Allocations& allocations, std::string_view name, const Layout& parameters,
                     const std::vector<uint64_t>& words, bool is_cut, const Signature* declared) {
  std::vector<uint64_t> layout;
  for (const auto& [offset, bytes] : parameters) layout.push_back(uint64_t{offset} << 32 | bytes);
  const dag::LaunchParameters launch{layout.data(), layout.size(), words.data(), words.size(), is_cut};
  const dag::Touched touched =
      declared ? dag::touched_by(launch, &declared->parameters, allocations.known())
               : dag::touched_by(launch, name, allocations.known());
  py::list accesses;
  for (const dag::Access& access : dag::accesses_of(touched))
    accesses.append(py::make_tuple(access.address, access.bytes, access.is_const));
  return py::make_tuple(accesses, touched.coverage == dag::Coverage::kAll);
}

}  // namespace

void add_buffers(py::module_& module) {
  using py::arg;
  py::class_<Allocations>(module, "Allocations", py::is_final())
      .def(py::init<>())
      .def("add", [](Allocations& a, uint64_t base, uint64_t bytes) { a.add({base, bytes}); },
           arg("address"), arg("size_bytes"))
      .def("remove", &Allocations::remove, arg("address"))
      .def("holding", &holding, arg("address"))
      .def("touched_by", &touched_by, arg("name"), arg("parameters"), arg("words"), py::kw_only(),
           arg("is_cut"), arg("declared") = nullptr);
}

}  // namespace tandem::bindings
