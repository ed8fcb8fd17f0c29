// The graph as Python sees it, for the files that bind more of it.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "dag/builder.h"

namespace tandem::bindings {

namespace py = pybind11;

// A graph with its rules, which rejects invalid numbers.
class Dag {
 public:
  // first address, bytes, is_const
  using Accesses = std::vector<std::tuple<uint64_t, uint64_t, bool>>;

  explicit Dag(uint64_t most_nodes) : builder_(most_nodes) {}

  uint32_t add_context() {
    const uint32_t context = builder_.order().add_context();
    if (context != dag::kNone) return contexts_ = context + 1, context;
    throw py::value_error("there have been " + std::to_string(dag::Order::kMostContexts) +
                          " contexts, the most that a graph follows");
  }

  uint32_t add_stream(uint32_t context, dag::StreamKind kind) {
    check(context, contexts_, "context");
    return remember(builder_.order().add_stream(context, kind), Chain::kStream);
  }

  uint32_t add_thread(uint32_t context) {
    check(context, contexts_, "context");
    return remember(builder_.order().add_thread(context), Chain::kThread);
  }

  void end_stream(uint32_t stream) {
    check_chain(stream, Chain::kStream, "stream");
    builder_.order().end(stream);
    if (builder_.order().is_legacy(stream)) return;
    chains_[stream] = Chain::kNone;
  }

  void end_thread(uint32_t thread) {
    check_chain(thread, Chain::kThread, "thread");
    builder_.order().end(thread);
    chains_[thread] = Chain::kNone;
  }

  void end_event(uint64_t event) { builder_.order().end_event(event); }

  void use_context(uint32_t thread, uint32_t context) {
    check_chain(thread, Chain::kThread, "thread");
    check(context, contexts_, "context");
    builder_.order().use_context(thread, context);
  }

  dag::NodeId add(const dag::Operation& op, const std::optional<Accesses>& accesses) {
    check_chain(op.thread, Chain::kThread, "thread");
    if (op.stream != dag::kNone) check_chain(op.stream, Chain::kStream, "stream");
    else if (op.kind < dag::Kind::kSyncEvent) throw py::value_error("stream is missing");
    std::vector<dag::Access> checked;
    if (accesses) checked = check_accesses(*accesses);
    check_room();
    return accesses ? builder_.add(op, none_if_empty(checked), checked.size()) : builder_.add(op);
  }

  void lose() { builder_.lose(); }
  void retire(dag::NodeId before) { builder_.retire(before); }

  const dag::Graph::Node& node(dag::NodeId id) const {
    if (!graph().has(id)) {
      throw py::index_error("node " + std::to_string(id) + " is not there; " +
                            std::to_string(graph().begin()) + " to " +
                            std::to_string(graph().end()) + " are, the last one not included");
    }
    return graph().node(id);
  }

  bool before(dag::NodeId first, dag::NodeId second) const {
    node(first), node(second);
    return graph().before(first, second);
  }

  bool may_overlap(dag::NodeId first, dag::NodeId second) const {
    node(first), node(second);
    return graph().may_overlap(first, second);
  }

  bool independent(dag::NodeId first, dag::NodeId second) const {
    node(first), node(second);
    return graph().independent(first, second);
  }

  using Edge = std::pair<dag::NodeId, dag::EdgeKind>;

  // Edges that lead to a node: data edges if `of_data`, else order edges.
  std::vector<Edge> edges(dag::NodeId id, bool of_data) const {
    node(id);
    std::vector<Edge> out;
    const auto see = [&](dag::NodeId from, dag::EdgeKind kind) { out.emplace_back(from, kind); };
    of_data ? graph().each_data_edge(id, see) : graph().each_edge(id, see);
    return out;
  }

  py::list accesses(dag::NodeId id) const {
    node(id);
    py::list out;
    graph().each_access(id, [&](const dag::Access& access) {
      out.append(py::make_tuple(access.address, access.bytes, access.is_const));
    });
    return out;
  }

  const dag::Graph& graph() const { return builder_.graph(); }
  size_t bytes() const { return builder_.bytes(); }

 private:
  void check_room() const {
    if (!graph().is_full()) return;
    throw py::value_error("the window is full with " + std::to_string(graph().size()) + " of " +
                          std::to_string(graph().most_nodes()) + " nodes; retire some");
  }
  static std::vector<dag::Access> check_accesses(const Accesses& accesses) {
    std::vector<dag::Access> checked;
    for (const auto& [address, bytes, is_const] : accesses) {
      if (bytes > UINT64_MAX - address) {
        throw py::value_error("access of " + std::to_string(bytes) + " bytes at " +
                              std::to_string(address) + " goes beyond the last address");
      }
      checked.push_back({address, bytes, is_const});
    }
    return checked;
  }
  // Null would mean that nothing is known.
  static const dag::Access* none_if_empty(const std::vector<dag::Access>& accesses) {
    static constexpr dag::Access kNo{};
    return accesses.empty() ? &kNo : accesses.data();
  }
  static void check(uint32_t number, uint32_t count, const char* what) {
    if (number < count) return;
    throw py::value_error(std::string(what) + " " + std::to_string(number) + " is unknown; there " +
                          "are " + std::to_string(count));
  }
  enum class Chain : uint8_t { kNone, kStream, kThread };

  void check_chain(uint32_t number, Chain kind, const char* what) const {
    check(number, static_cast<uint32_t>(chains_.size()), what);
    if (chains_[number] == kind) return;
    throw py::value_error(std::to_string(number) + " is no " + what);
  }
  uint32_t remember(uint32_t number, Chain kind) {
    if (number == dag::kNone) {
      throw py::value_error("there are " + std::to_string(dag::Order::kMostChains) +
                            " streams and threads, the most that a graph follows at once; end "
                            "some, and retire what is in them");
    }
    if (number >= chains_.size()) chains_.resize(number + 1);
    chains_[number] = kind;
    return number;
  }

  dag::Builder builder_;
  uint32_t contexts_ = 0;
  std::vector<Chain> chains_;
};

}  // namespace tandem::bindings
