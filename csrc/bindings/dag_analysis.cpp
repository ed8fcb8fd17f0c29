#include <pybind11/stl.h>

#include <algorithm>
#include <utility>

#include "bindings.h"
#include "dag.h"
#include "dag/analysis/analysis.h"
#include "dag/analysis/held.h"
#include "dag_findings.h"

namespace tandem::bindings {
namespace {

namespace analysis = dag::analysis;
using analysis::Analysis;
using analysis::Class;
using analysis::LongestPath;
using analysis::Times;
using dag::NodeId;
using py::arg;
using Span = std::pair<uint64_t, uint64_t>;
using Measured = std::vector<std::optional<Span>>;

void check_window(const Dag& dag, NodeId first, NodeId last) {
  const NodeId begin = dag.graph().begin(), end = dag.graph().end();
  if (begin <= first && first <= last && last <= end) return;
  throw py::index_error("nodes " + std::to_string(first) + " to " + std::to_string(last) +
                        " are not there; " + std::to_string(begin) + " to " + std::to_string(end) +
                        " are, the last one not included");
}

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

std::vector<Times> united(const std::vector<Span>& spans) {
  std::vector<Times> out;
  for (const auto& [start_ns, end_ns] : spans) out.push_back({start_ns, end_ns});
  return analysis::united(std::move(out));
}

Analysis analyse(const Dag& dag, NodeId first, NodeId last, std::optional<NodeId> since,
                 const Measured& measured, uint32_t sm_count, uint64_t bandwidth_bytes_per_s,
                 uint64_t small_ns, double memory_share, double compute_share,
                 const std::vector<Span>& held, uint64_t pause_ns, uint64_t least_gap_ns,
                 std::vector<NodeId> iterations, bool periodic) {
  check_window(dag, first, last);
  const NodeId from = since.value_or(dag.graph().begin());
  check_window(dag, from, first);
  std::sort(iterations.begin(), iterations.end());
  return analysis::analyse({dag.graph(), first, last}, {from,
                                                        times_of(measured, last - first),
                                                        {sm_count, bandwidth_bytes_per_s, small_ns,
                                                         memory_share, compute_share},
                                                        united(held),
                                                        pause_ns,
                                                        least_gap_ns,
                                                        std::move(iterations),
                                                        periodic});
}

std::vector<uint64_t> column(const Analysis& all, uint64_t Times::* field) {
  std::vector<uint64_t> out;
  out.reserve(all.last - all.first);
  for (NodeId id = all.first; id < all.last; ++id) out.push_back(all.schedule.at(id).*field);
  return out;
}

// A field of a path, or None if there is no path.
template <class T>
py::object or_none(const std::optional<LongestPath>& path, T LongestPath::* field) {
  return path ? py::cast((*path).*field) : py::none();
}

py::list width_of(const Analysis& all) {
  py::list out;
  for (const auto& change : all.width.changes)
    out.append(py::make_tuple(change.ns, change.running));
  return out;
}

py::dict class_shares(const Analysis& all) {
  py::dict out;
  for (uint32_t i = 0; i < analysis::kClassCount; ++i)
    out[py::cast(static_cast<Class>(i))] = all.classes.share[i];
  return out;
}

NextUse next_use(const Analysis& all, size_t index) {
  const auto& use = all.next_uses.uses[index];
  const auto& buffer = all.next_uses.buffers[use.buffer];
  NextUse out{all.first + use.node, buffer.address, buffer.bytes, {}, {}, {}, use.is_bound};
  if (use.next == analysis::kNoUse) return out;
  const auto far =
      analysis::distance(all.next_uses, index, all.schedule, all.first, all.critical.total_ns);
  out.next = all.first + all.next_uses.uses[use.next].node;
  out.distance_nodes = far.nodes;
  out.distance_ns = far.ns;
  return out;
}

std::vector<NextUse> next_uses(const Analysis& all) {
  std::vector<NextUse> out;
  out.reserve(all.next_uses.uses.size());
  for (size_t i = 0; i < all.next_uses.uses.size(); ++i) out.push_back(next_use(all, i));
  return out;
}

using Bound = py::class_<Analysis>;

void bind_times(Bound& bound) {
  bound.def_readonly("first", &Analysis::first)
      .def_readonly("last", &Analysis::last)
      .def_readonly("unknown", &Analysis::unknown)
      .def_property_readonly("starts_ns",
                             [](const Analysis& all) { return column(all, &Times::start_ns); })
      .def_property_readonly("ends_ns",
                             [](const Analysis& all) { return column(all, &Times::end_ns); });
}

void bind_paths(Bound& bound) {
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

void bind_use(Bound& bound) {
  bound.def_property_readonly("width", &width_of)
      .def_property_readonly("most_width", [](const Analysis& all) { return all.width.most; })
      .def_property_readonly("mean_width", [](const Analysis& all) { return all.width.mean; })
      .def_property_readonly("busy_ns", [](const Analysis& all) { return all.width.busy_ns; })
      .def_readonly("overlap", &Analysis::overlap)
      .def_property_readonly("classes", [](const Analysis& all) { return all.classes.of; })
      .def_property_readonly("class_shares", &class_shares)
      .def_property_readonly("dominating_class",
                             [](const Analysis& all) { return all.classes.dominating; })
      .def_property_readonly("next_uses", &next_uses)
      .def_readonly("gaps", &Analysis::gaps)
      .def_readonly("gap_places", &Analysis::gap_places)
      .def_readonly("launch_bound", &Analysis::launch_bound)
      .def_readonly("waits", &Analysis::waits);
}

}  // namespace

void add_dag_analysis(py::module_& module) {
  add_findings(module);
  Bound bound(module, "Analysis", py::is_final());
  bind_times(bound);
  bind_paths(bound);
  bind_use(bound);
  const analysis::Device device;
  const analysis::Options options;
  module.def("analyse", &analyse, arg("dag"), arg("first"), arg("last"), py::kw_only(),
             arg("since") = py::none(), arg("measured") = Measured(),
             arg("sm_count") = device.sm_count,
             arg("bandwidth_bytes_per_s") = device.bandwidth_bytes_per_s,
             arg("small_ns") = device.small_ns, arg("memory_share") = device.memory_share,
             arg("compute_share") = device.compute_share, arg("held") = std::vector<Span>(),
             arg("pause_ns") = options.pause_ns, arg("least_gap_ns") = options.least_gap_ns,
             arg("iterations") = std::vector<NodeId>(), arg("periodic") = false);
}

}  // namespace tandem::bindings
