#include "dag/iterations.h"

#include <cstring>
#include <string_view>

#include "bindings.h"

namespace tandem::bindings {
namespace {

namespace py = pybind11;
using dag::IterationFinder;
using py::arg;

// Where iterations ended while these records came in: the ticks of what came next.
py::list take(IterationFinder& finder, const py::bytes& bytes) {
  const std::string_view view = bytes;
  if (view.size() % sizeof(shm::Record) != 0) {
    throw py::value_error(std::to_string(view.size()) + " bytes are no whole number of records of " +
                          std::to_string(sizeof(shm::Record)));
  }
  py::list ends;
  for (size_t at = 0; at < view.size(); at += sizeof(shm::Record)) {
    shm::Record record;
    std::memcpy(&record, view.data() + at, sizeof(record));
    const uint64_t before = finder.ends();
    finder.take(record);
    if (finder.ends() != before) ends.append(finder.last_end());
  }
  return ends;
}

}  // namespace

void add_iterations(py::module_& module) {
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
