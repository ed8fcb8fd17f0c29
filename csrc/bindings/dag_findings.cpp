#include "dag_findings.h"

#include <pybind11/native_enum.h>
#include <pybind11/stl.h>

#include "dag/analysis/analysis.h"

namespace tandem::bindings {
namespace {

namespace py = pybind11;
using namespace dag::analysis;

void add_causes(py::module_& module) {
  py::native_enum<GapCause>(module, "GapCause", "enum.Enum")
      .value("HOST", GapCause::kHost)
      .value("SYNC", GapCause::kSync)
      .value("PAUSE", GapCause::kPause)
      .value("HELD", GapCause::kHeld)
      .value("FUNCTION", GapCause::kFunction)
      .value("OTHER", GapCause::kOther)
      .finalize();
  py::native_enum<Class>(module, "OperationClass", "enum.Enum")
      .value("COMPUTE", Class::kCompute)
      .value("MEMORY", Class::kMemory)
      .value("COPY", Class::kCopy)
      .value("SMALL", Class::kSmall)
      .value("UNKNOWN", Class::kUnknown)
      .value("NONE", Class::kNone)
      .finalize();
}

void add_gaps(py::module_& module) {
  py::class_<Gap>(module, "Gap", py::is_final())
      .def_readonly("start_ns", &Gap::start_ns)
      .def_readonly("end_ns", &Gap::end_ns)
      .def_readonly("held_ns", &Gap::held_ns)
      .def_readonly("next", &Gap::next)
      .def_readonly("cause", &Gap::cause);
  py::class_<GapPlace>(module, "GapPlace", py::is_final())
      .def_readonly("place", &GapPlace::place)
      .def_readonly("count", &GapPlace::count)
      .def_readonly("iterations", &GapPlace::iterations)
      .def_readonly("p50_ns", &GapPlace::p50_ns)
      .def_readonly("p90_ns", &GapPlace::p90_ns);
  py::class_<LaunchBound>(module, "LaunchBound", py::is_final())
      .def_readonly("operations", &LaunchBound::operations)
      .def_readonly("found_idle", &LaunchBound::found_idle)
      .def_readonly("share", &LaunchBound::share)
      .def_readonly("idle_share", &LaunchBound::idle_share)
      .def_readonly("verdict", &LaunchBound::verdict);
}

void add_parts(py::module_& module) {
  py::class_<Unknown>(module, "AnalysisUnknown", py::is_final())
      .def_readonly("durations", &Unknown::durations)
      .def_readonly("estimated", &Unknown::estimated)
      .def_readonly("accesses", &Unknown::accesses)
      .def_readonly("order", &Unknown::order);
  py::class_<CriticalPath>(module, "CriticalParts", py::is_final())
      .def_readonly("gpu_ns", &CriticalPath::gpu_ns)
      .def_readonly("host_ns", &CriticalPath::host_ns)
      .def_readonly("held_ns", &CriticalPath::held_ns)
      .def_readonly("earlier_ns", &CriticalPath::earlier_ns)
      .def_readonly("other_ns", &CriticalPath::other_ns);
  py::class_<Overlap>(module, "Overlap", py::is_final())
      .def_readonly("ct", &Overlap::ct)
      .def_readonly("tc", &Overlap::tc)
      .def_readonly("cc", &Overlap::cc)
      .def_readonly("tot", &Overlap::tot);
  py::class_<Wait>(module, "Wait", py::is_final())
      .def_readonly("node", &Wait::node)
      .def_property_readonly("reason",
                             [](const Wait& wait) -> py::object {
                               return wait.reason == dag::kNoNode ? py::object(py::none())
                                                                  : py::int_(wait.reason);
                             })
      .def_readonly("waited_ns", &Wait::waited_ns);
  py::class_<NextUse>(module, "NextUse", py::is_final())
      .def_readonly("node", &NextUse::node)
      .def_readonly("address", &NextUse::address)
      .def_readonly("bytes", &NextUse::bytes)
      .def_readonly("next", &NextUse::next)
      .def_readonly("distance_nodes", &NextUse::distance_nodes)
      .def_readonly("distance_ns", &NextUse::distance_ns)
      .def_readonly("is_bound", &NextUse::is_bound);
}

}  // namespace

void add_findings(py::module_& module) {
  add_causes(module);
  add_gaps(module);
  add_parts(module);
}

}  // namespace tandem::bindings
