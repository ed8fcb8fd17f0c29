#include <pybind11/native_enum.h>

#include <string>
#include <vector>

#include "bindings.h"
#include "dag/graph.h"
#include "dag/order.h"

namespace tandem::bindings {
namespace {

namespace py = pybind11;
using dag::Kind;
using dag::NodeId;
using dag::Operation;
using py::arg;

// A graph with its rules, safe against wrong numbers.
class Dag {
 public:
  uint32_t add_context() { return contexts_ = order_.add_context() + 1, contexts_ - 1; }

  uint32_t add_stream(uint32_t context, dag::StreamKind kind) {
    check(context, contexts_, "context");
    return remember(order_.add_stream(context, kind), false);
  }

  uint32_t add_thread(uint32_t context) {
    check(context, contexts_, "context");
    return remember(order_.add_thread(context), true);
  }

  void use_context(uint32_t thread, uint32_t context) {
    check_chain(thread, true, "thread");
    check(context, contexts_, "context");
    order_.use_context(thread, context);
  }

  NodeId add(const Operation& op) {
    check_chain(op.thread, true, "thread");
    if (op.stream != dag::kNone) check_chain(op.stream, false, "stream");
    else if (op.kind < Kind::kSyncEvent) throw py::value_error("stream is missing");
    return order_.add(op);
  }

  void lose() { order_.lose(); }
  void retire(NodeId before) { order_.retire(before); }

  const dag::Graph::Node& node(NodeId id) const {
    if (!graph_.has(id)) {
      throw py::index_error("node " + std::to_string(id) + " is not there; " +
                            std::to_string(graph_.begin()) + " to " +
                            std::to_string(graph_.end()) + " are, the last one not included");
    }
    return graph_.node(id);
  }

  bool before(NodeId first, NodeId second) const {
    node(first), node(second);
    return graph_.before(first, second);
  }

  py::list edges(NodeId id) const {
    node(id);
    py::list out;
    graph_.each_edge(id, [&](NodeId from, dag::EdgeKind kind) {
      out.append(py::make_tuple(from, kind));
    });
    return out;
  }

  const dag::Graph& graph() const { return graph_; }

 private:
  static void check(uint32_t number, uint32_t count, const char* what) {
    if (number < count) return;
    throw py::value_error(std::string(what) + " " + std::to_string(number) + " is unknown; there " +
                          "are " + std::to_string(count));
  }
  void check_chain(uint32_t number, bool is_thread, const char* what) const {
    check(number, static_cast<uint32_t>(is_thread_.size()), what);
    if (is_thread_[number] == is_thread) return;
    throw py::value_error(std::to_string(number) + " is no " + what);
  }
  uint32_t remember(uint32_t chain, bool is_thread) {
    is_thread_.push_back(is_thread);
    return chain;
  }

  dag::Graph graph_;
  dag::Order order_{graph_};
  uint32_t contexts_ = 0;
  std::vector<bool> is_thread_;  // by chain
};

Operation operation(Kind kind, uint32_t thread, uint32_t stream, uint64_t object, uint64_t bytes,
                    uint64_t submitted_ns, uint64_t duration_ns, uint32_t blocks, uint8_t flags) {
  return {kind, flags, thread, stream, blocks, object, bytes, submitted_ns, duration_ns};
}

void add_enums(py::module_& module) {
  using dag::EdgeKind;
  using dag::StreamKind;
  py::native_enum<Kind>(module, "OperationKind", "enum.Enum")
      .value("LAUNCH", Kind::kLaunch).value("GRAPH", Kind::kGraph).value("COPY", Kind::kCopy)
      .value("MEMSET", Kind::kMemset).value("MEMOP", Kind::kMemOp)
      .value("HOST_FUNC", Kind::kHostFunc).value("EVENT_RECORD", Kind::kEventRecord)
      .value("EVENT_WAIT", Kind::kEventWait).value("SYNC_STREAM", Kind::kSyncStream)
      .value("SYNC_EVENT", Kind::kSyncEvent).value("SYNC_CONTEXT", Kind::kSyncContext)
      .value("ALLOC", Kind::kAlloc).value("FREE", Kind::kFree)
      .finalize();
  py::native_enum<EdgeKind>(module, "EdgeKind", "enum.Enum")
      .value("STREAM", EdgeKind::kStream).value("EVENT", EdgeKind::kEvent)
      .value("LEGACY", EdgeKind::kLegacy).value("HOST", EdgeKind::kHost)
      .value("READ_AFTER_WRITE", EdgeKind::kReadAfterWrite)
      .value("WRITE_AFTER_READ", EdgeKind::kWriteAfterRead)
      .value("WRITE_AFTER_WRITE", EdgeKind::kWriteAfterWrite)
      .value("UNKNOWN_DATA", EdgeKind::kUnknownData)
      .finalize();
  py::native_enum<StreamKind>(module, "StreamKind", "enum.Enum")
      .value("BLOCKING", StreamKind::kBlocking).value("NON_BLOCKING", StreamKind::kNonBlocking)
      .value("LEGACY", StreamKind::kLegacy)
      .finalize();
}

void add_operation(py::module_& module) {
  py::class_<Operation>(module, "Operation", py::is_final())
      .def(py::init(&operation), arg("kind"), py::kw_only(), arg("thread"),
           arg("stream") = dag::kNone, arg("object") = 0, arg("bytes") = 0,
           arg("submitted_ns") = 0, arg("duration_ns") = 0, arg("blocks") = 0, arg("flags") = 0)
      .def_readonly("kind", &Operation::kind)
      .def_readonly("flags", &Operation::flags)
      .def_readonly("thread", &Operation::thread)
      .def_property_readonly("stream", [](const Operation& op) -> py::object {
        return op.stream == dag::kNone ? py::object(py::none()) : py::int_(op.stream);
      })
      .def_readonly("object", &Operation::object)
      .def_readonly("bytes", &Operation::bytes)
      .def_readonly("submitted_ns", &Operation::submitted_ns)
      .def_readonly("duration_ns", &Operation::duration_ns)
      .def_readonly("blocks", &Operation::blocks);
}

}  // namespace

void add_dag(py::module_& module) {
  add_enums(module);
  add_operation(module);
  py::class_<Dag>(module, "Dag", py::is_final())
      .def(py::init<>())
      .def("add_context", &Dag::add_context)
      .def("add_stream", &Dag::add_stream, arg("context"), arg("kind"))
      .def("add_thread", &Dag::add_thread, arg("context"))
      .def("use_context", &Dag::use_context, arg("thread"), arg("context"))
      .def("add", &Dag::add, arg("operation"))
      .def("lose", &Dag::lose)
      .def("retire", &Dag::retire, arg("before"))
      .def("node", [](const Dag& dag, NodeId id) { return dag.node(id).op; }, arg("id"))
      .def("edges", &Dag::edges, arg("id"))
      .def("before", &Dag::before, arg("first"), arg("second"))
      .def_property_readonly("begin", [](const Dag& dag) { return dag.graph().begin(); })
      .def_property_readonly("end", [](const Dag& dag) { return dag.graph().end(); })
      .def_property_readonly("bytes", [](const Dag& dag) { return dag.graph().bytes(); });
}

}  // namespace tandem::bindings
