#include <pybind11/stl.h>

#include "bindings.h"
#include "dag.h"
#include "dag/analysis/analysis.h"

namespace tandem::bindings {
namespace {

namespace analysis = dag::analysis;
using analysis::Analysis;
using analysis::Times;
using dag::NodeId;
using py::arg;

void check_window(const Dag& dag, NodeId first, NodeId last) {
  const NodeId begin = dag.graph().begin(), end = dag.graph().end();
  if (begin <= first && first <= last && last <= end) return;
  throw py::index_error("nodes " + std::to_string(first) + " to " + std::to_string(last) +
                        " are not there; " + std::to_string(begin) + " to " + std::to_string(end) +
                        " are, the last one not included");
}

using Measured = std::vector<std::optional<std::pair<uint64_t, uint64_t>>>;

std::vector<Times> times_of(const Measured& measured, size_t count) {
  if (!measured.empty() && measured.size() != count) {
    throw py::value_error("measured has " + std::to_string(measured.size()) + " entries; the " +
                          "window has " + std::to_string(count) + " nodes");
  }
  std::vector<Times> out;
  out.reserve(measured.size());
  for (const auto& entry : measured)
    out.push_back(entry ? Times{entry->first, entry->second} : Times{0, 0});
  return out;
}

Analysis analyse(const Dag& dag, NodeId first, NodeId last, std::optional<NodeId> since,
                 const Measured& measured) {
  check_window(dag, first, last);
  const NodeId from = since.value_or(dag.graph().begin());
  check_window(dag, from, first);
  return analysis::analyse({dag.graph(), first, last}, from, times_of(measured, last - first));
}

std::vector<uint64_t> column(const Analysis& all, uint64_t Times::*field) {
  std::vector<uint64_t> out;
  out.reserve(all.last - all.first);
  for (NodeId id = all.first; id < all.last; ++id) out.push_back(all.schedule.at(id).*field);
  return out;
}

// Of a part of it that may not be there.
template <class T>
py::object or_none(const std::optional<analysis::LongestPath>& path, T analysis::LongestPath::*field) {
  return path ? py::cast(*path.*field) : py::none();
}

void add_parts(py::module_& module) {
  using analysis::CriticalPath;
  using analysis::Unknown;
  py::class_<Unknown>(module, "AnalysisUnknown", py::is_final())
      .def_readonly("durations", &Unknown::durations)
      .def_readonly("estimated", &Unknown::estimated)
      .def_readonly("accesses", &Unknown::accesses)
      .def_readonly("order", &Unknown::order);
  py::class_<CriticalPath>(module, "CriticalParts", py::is_final())
      .def_readonly("gpu_ns", &CriticalPath::gpu_ns)
      .def_readonly("host_ns", &CriticalPath::host_ns)
      .def_readonly("earlier_ns", &CriticalPath::earlier_ns)
      .def_readonly("other_ns", &CriticalPath::other_ns);
}

using Bound = py::class_<Analysis>;

void bind_paths(Bound& bound) {
  using analysis::LongestPath;
  bound
      .def_property_readonly("critical_path",
                             [](const Analysis& all) { return all.critical.nodes; })
      .def_property_readonly("critical_ns",
                             [](const Analysis& all) { return all.critical.total_ns; })
      .def_readonly("critical_parts", &Analysis::critical)
      .def_property_readonly("gpu_critical_path",
                             [](const Analysis& all) { return all.gpu_critical.nodes; })
      .def_property_readonly("gpu_critical_ns",
                             [](const Analysis& all) { return all.gpu_critical.length_ns; })
      .def_property_readonly(
          "data_critical_path",
          [](const Analysis& all) { return or_none(all.data_critical, &LongestPath::nodes); })
      .def_property_readonly(
          "data_critical_ns",
          [](const Analysis& all) { return or_none(all.data_critical, &LongestPath::length_ns); })
      .def_readonly("slack_ns", &Analysis::slack_ns);
}

}  // namespace

void add_dag_analysis(py::module_& module) {
  add_parts(module);
  Bound bound(module, "Analysis", py::is_final());
  bound.def_readonly("first", &Analysis::first)
      .def_readonly("last", &Analysis::last)
      .def_readonly("unknown", &Analysis::unknown)
      .def_property_readonly(
          "starts_ns", [](const Analysis& all) { return column(all, &Times::start_ns); })
      .def_property_readonly(
          "ends_ns", [](const Analysis& all) { return column(all, &Times::end_ns); });
  bind_paths(bound);
  module.def("analyse", &analyse, arg("dag"), arg("first"), arg("last"), py::kw_only(),
             arg("since") = py::none(), arg("measured") = Measured());
}

}  // namespace tandem::bindings
