#include "dag/iterations.h"

#include <string>
#include <vector>

#include "bindings.h"
#include "dag/phases.h"

namespace tandem::bindings {
namespace {

namespace py = pybind11;
using dag::IterationFinder;
using py::arg;

// Returns where iterations ended in these records: the ticks of whatever came next.
py::list take(IterationFinder& finder, const py::bytes& bytes) {
  py::list ends;
  for (const shm::Record& record : records_in(bytes)) {
    const uint64_t before = finder.ends();
    finder.take(record);
    if (finder.ends() != before) ends.append(finder.last_end());
  }
  return ends;
}

// Returns a letter for each launch of one iteration: F, B or U for forward, backward, update; - for
// a launch outside of them. Empty: not known.
std::string split_phases(const py::bytes& bytes) {
  std::vector<dag::Item> items;
  for (const shm::Record& record : records_in(bytes)) {
    dag::Item item{};
    if (dag::item_of(record, &item)) items.push_back(item);
  }
  std::vector<dag::Phase> phases = dag::split_by_marks(items);
  if (phases.empty()) phases = dag::split(items);
  std::string out;
  for (const dag::Phase phase : phases) out += "-FBU"[static_cast<size_t>(phase)];
  return out;
}

}  // namespace

void add_iterations(py::module_& module) {
  module.def("split_phases", &split_phases, arg("records"));
  py::class_<IterationFinder>(module, "IterationFinder", py::is_final())
      .def(py::init<>())
      .def("take", &take, arg("records"))
      .def("gap", &IterationFinder::gap)
      .def_property_readonly("found", &IterationFinder::found)
      .def_property_readonly("ends", &IterationFinder::ends)
      .def_property_readonly("duration", &IterationFinder::duration)
      .def_property_readonly("launches", &IterationFinder::launches);
}

}  // namespace tandem::bindings
