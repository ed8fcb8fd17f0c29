// A graph together with all rules that make its edges. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dag/data.h"
#include "dag/graph.h"
#include "dag/order.h"

namespace tandem::dag {

class Builder {
 public:
  explicit Builder(uint64_t most_nodes = Graph::kMostNodes, NodeId first = 0)
      : graph_(most_nodes, first) {}
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  const Graph& graph() const { return graph_; }
  Order& order() { return order_; }  // for numbering contexts, streams and threads

  // Adds the next operation, in the order of the calls, and the memory it uses (Data::add). Returns
  // kNoNode if it cannot be followed (Order::add).
  NodeId add(const Operation& op, const Access* accesses = nullptr, size_t count = 0) {
    const NodeId id = order_.add(op);
    id == kNoNode ? data_.lose() : data_.add(accesses, count);
    return id;
  }

  // Operations are missing here.
  void lose() {
    order_.lose();
    data_.lose();
  }

  // Forgets the nodes before `before`.
  void retire(NodeId before) {
    graph_.retire(before);
    if (!graph_.wants_compaction()) return;
    order_.compact();
    data_.compact();
  }

  size_t bytes() const { return graph_.bytes() + order_.bytes() + data_.bytes(); }

 private:
  Graph graph_;
  Order order_{graph_};
  Data data_{graph_};
};

}  // namespace tandem::dag
