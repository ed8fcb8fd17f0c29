// Memory curves, as Python sees them.
#include "dag/memory_curve.h"

#include <pybind11/stl.h>

#include <cstring>
#include <utility>

#include "bindings.h"

namespace tandem::bindings {
namespace {

namespace py = pybind11;

py::tuple memory_curve(const std::string& records, size_t most) {
  if (most < 2) throw py::value_error("most is " + std::to_string(most) + ", less than 2");
  if (records.size() % sizeof(shm::Record) != 0) {
    throw py::value_error("records have " + std::to_string(records.size()) +
                          " bytes, no multiple of 64");
  }
  std::vector<shm::Record> copied(records.size() / sizeof(shm::Record));
  if (!copied.empty()) std::memcpy(copied.data(), records.data(), records.size());
  const dag::MemoryCurve found = dag::memory_curve(copied, most);
  std::vector<std::pair<uint64_t, uint64_t>> steps;
  for (const auto& step : found.steps) steps.emplace_back(step.progress_ns, step.held_bytes);
  return py::make_tuple(steps, found.length_ns, found.launches, found.untimed);
}

}  // namespace

void add_memory_curve(py::module_& module) {
  using py::arg;
  module.def(
      "memory_curve",
      [](const py::bytes& records, size_t most) { return memory_curve(records, most); },
      arg("records"), py::kw_only(), arg("most"));
}

}  // namespace tandem::bindings
