#include <pybind11/native_enum.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <vector>

#include "bindings.h"
#include "dag.h"

namespace tandem::bindings {
namespace {

namespace py = pybind11;
using dag::Kind;
using dag::NodeId;
using dag::Operation;
using py::arg;

Operation operation(Kind kind, uint32_t thread, uint32_t stream, uint64_t object, uint64_t bytes,
                    uint64_t submitted_ns, uint64_t duration_ns, uint32_t blocks, uint8_t flags) {
  return {kind, flags, 0, thread, stream, blocks, object, bytes, submitted_ns, duration_ns};
}

void add_enums(py::module_& module) {
  using dag::EdgeKind;
  using dag::StreamKind;
  py::native_enum<Kind>(module, "OperationKind", "enum.IntEnum")
      .value("LAUNCH", Kind::kLaunch)
      .value("GRAPH", Kind::kGraph)
      .value("COPY", Kind::kCopy)
      .value("MEMSET", Kind::kMemset)
      .value("MEMOP", Kind::kMemOp)
      .value("HOST_FUNC", Kind::kHostFunc)
      .value("EVENT_RECORD", Kind::kEventRecord)
      .value("EVENT_WAIT", Kind::kEventWait)
      .value("SYNC_STREAM", Kind::kSyncStream)
      .value("SYNC_EVENT", Kind::kSyncEvent)
      .value("SYNC_CONTEXT", Kind::kSyncContext)
      .value("ALLOC", Kind::kAlloc)
      .value("FREE", Kind::kFree)
      .finalize();
  py::native_enum<EdgeKind>(module, "EdgeKind", "enum.IntEnum")
      .value("STREAM", EdgeKind::kStream)
      .value("EVENT", EdgeKind::kEvent)
      .value("LEGACY", EdgeKind::kLegacy)
      .value("HOST", EdgeKind::kHost)
      .value("OVERLAP", EdgeKind::kOverlap)
      .value("READ_AFTER_WRITE", EdgeKind::kReadAfterWrite)
      .value("WRITE_AFTER_READ", EdgeKind::kWriteAfterRead)
      .value("WRITE_AFTER_WRITE", EdgeKind::kWriteAfterWrite)
      .value("UNKNOWN_DATA", EdgeKind::kUnknownData)
      .finalize();
  py::native_enum<StreamKind>(module, "StreamKind", "enum.Enum")
      .value("BLOCKING", StreamKind::kBlocking)
      .value("NON_BLOCKING", StreamKind::kNonBlocking)
      .value("LEGACY", StreamKind::kLegacy)
      .finalize();
}

void add_operation(py::module_& module) {
  py::class_<Operation>(module, "Operation", py::is_final())
      .def(py::init(&operation), arg("kind"), py::kw_only(), arg("thread"),
           arg("stream") = dag::kNone, arg("object") = 0, arg("bytes") = 0, arg("submitted_ns") = 0,
           arg("duration_ns") = 0, arg("blocks") = 0, arg("flags") = 0)
      .def_readonly("kind", &Operation::kind)
      .def_readonly("flags", &Operation::flags)
      .def_readonly("thread", &Operation::thread)
      .def_property_readonly("stream",
                             [](const Operation& op) -> py::object {
                               return op.stream == dag::kNone ? py::object(py::none())
                                                              : py::int_(op.stream);
                             })
      .def_readonly("object", &Operation::object)
      .def_readonly("bytes", &Operation::bytes)
      .def_readonly("submitted_ns", &Operation::submitted_ns)
      .def_readonly("duration_ns", &Operation::duration_ns)
      .def_readonly("blocks", &Operation::blocks);
}

// Checks that the nodes from `first` to before `last` all exist; the range may be empty.
void check_nodes(const Dag& dag, NodeId first, NodeId last) {
  if (first >= last) return;
  dag.node(first), dag.node(last - 1);
}

py::list edges_between(const Dag& dag, NodeId first, NodeId last, bool of_data, NodeId since) {
  check_nodes(dag, first, last);
  std::map<dag::EdgeKind, py::object> kinds;  // one object each, since creating them takes longest
  py::list out;
  for (NodeId id = first; id < last; ++id) {
    std::vector<Dag::Edge> edges = dag.edges(id, of_data);
    std::sort(edges.begin(), edges.end());
    for (const auto& [from, kind] : edges) {
      if (from < since) continue;
      auto& named = kinds[kind];
      if (!named) named = py::cast(kind);
      out.append(py::make_tuple(from, id, named));
    }
  }
  return out;
}

// Counts the edges between these nodes, by kind.
std::map<dag::EdgeKind, uint64_t> count_edges(const Dag& dag, NodeId first, NodeId last) {
  check_nodes(dag, first, last);
  std::map<dag::EdgeKind, uint64_t> counts;
  const auto see = [&](NodeId from, dag::EdgeKind kind) { counts[kind] += from >= first; };
  for (NodeId id = first; id < last; ++id) {
    dag.graph().each_edge(id, see);
    dag.graph().each_data_edge(id, see);
  }
  return counts;
}

}  // namespace

void add_dag(py::module_& module) {
  add_enums(module);
  add_operation(module);
  py::class_<Dag>(module, "Dag", py::is_final())
      .def(py::init<uint64_t>(), py::kw_only(), arg("most_nodes") = dag::Graph::kMostNodes)
      .def("add_context", &Dag::add_context)
      .def("add_stream", &Dag::add_stream, arg("context"), arg("kind"))
      .def("add_thread", &Dag::add_thread, arg("context"))
      .def("use_context", &Dag::use_context, arg("thread"), arg("context"))
      .def("end_stream", &Dag::end_stream, arg("stream"))
      .def("end_thread", &Dag::end_thread, arg("thread"))
      .def("end_event", &Dag::end_event, arg("event"))
      .def("add", &Dag::add, arg("operation"), arg("accesses") = py::none())
      .def("lose", &Dag::lose)
      .def("retire", &Dag::retire, arg("before"))
      .def(
          "node", [](const Dag& dag, NodeId id) { return dag.node(id).op; }, arg("id"))
      .def(
          "edges", [](const Dag& dag, NodeId id) { return dag.edges(id, false); }, arg("id"))
      .def(
          "data_edges", [](const Dag& dag, NodeId id) { return dag.edges(id, true); }, arg("id"))
      .def("edges_between", &edges_between, arg("first"), arg("last"), py::kw_only(),
           arg("of_data"), arg("since"))
      .def("count_edges", &count_edges, arg("first"), arg("last"))
      .def("accesses", &Dag::accesses, arg("id"))
      .def("before", &Dag::before, arg("first"), arg("second"))
      .def("may_overlap", &Dag::may_overlap, arg("first"), arg("second"))
      .def("independent", &Dag::independent, arg("first"), arg("second"))
      .def_property_readonly("begin", [](const Dag& dag) { return dag.graph().begin(); })
      .def_property_readonly("end", [](const Dag& dag) { return dag.graph().end(); })
      .def_property_readonly("bytes", [](const Dag& dag) { return dag.bytes(); });
}

}  // namespace tandem::bindings
