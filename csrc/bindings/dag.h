// The graph as Python holds it, for those who bind more of it.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "dag/graph.h"
#include "dag/order.h"

namespace tandem::bindings {

namespace py = pybind11;

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

  dag::NodeId add(const dag::Operation& op) {
    check_chain(op.thread, true, "thread");
    if (op.stream != dag::kNone) check_chain(op.stream, false, "stream");
    else if (op.kind < dag::Kind::kSyncEvent) throw py::value_error("stream is missing");
    return order_.add(op);
  }

  void lose() { order_.lose(); }
  void retire(dag::NodeId before) { order_.retire(before); }

  const dag::Graph::Node& node(dag::NodeId id) const {
    if (!graph_.has(id)) {
      throw py::index_error("node " + std::to_string(id) + " is not there; " +
                            std::to_string(graph_.begin()) + " to " +
                            std::to_string(graph_.end()) + " are, the last one not included");
    }
    return graph_.node(id);
  }

  bool before(dag::NodeId first, dag::NodeId second) const {
    node(first), node(second);
    return graph_.before(first, second);
  }

  py::list edges(dag::NodeId id) const {
    node(id);
    py::list out;
    graph_.each_edge(id, [&](dag::NodeId from, dag::EdgeKind kind) {
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

}  // namespace tandem::bindings
