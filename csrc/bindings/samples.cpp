// Samples of launches, as Python sees them.
#include <pybind11/stl.h>

#include "bindings.h"
#include "daemon/sample.h"

namespace tandem::bindings {
namespace {

namespace py = pybind11;
using daemon::Sample;

py::list functions_in(const Sample& sample) {
  py::list out;
  for (const daemon::SampledFunction& function : sample.functions) {
    py::list layout;
    for (const uint64_t word : function.layout)
      layout.append(py::make_tuple(word >> 32, word & 0xffffffff));
    out.append(py::make_tuple(function.handle, function.name, layout, function.is_cut));
  }
  return out;
}

py::list launches_in(const Sample& sample) {
  py::list out;
  for (const daemon::SampledLaunch& launch : sample.launches) {
    const uint64_t* words = sample.words.data() + launch.first_word;
    const bool is_known = launch.function != Sample::kUnknown;
    out.append(py::make_tuple(
        launch.number, launch.thread, is_known ? py::object(py::int_(launch.function)) : py::none(),
        std::vector<uint64_t>(words, words + launch.word_count), launch.is_cut));
  }
  return out;
}

}  // namespace

void add_samples(py::module_& module) {
  py::class_<Sample>(module, "Sample", py::is_final())
      .def_readonly("number", &Sample::number)
      .def_property_readonly("window",
                             [](const Sample& sample) {
                               return std::const_pointer_cast<daemon::Window>(sample.window);
                             })
      .def_readonly("lost", &Sample::lost)
      .def_property_readonly("functions", &functions_in)
      .def_property_readonly("launches", &launches_in);
}

}  // namespace tandem::bindings
