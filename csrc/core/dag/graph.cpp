#include "dag/graph.h"

#include <algorithm>

namespace tandem::dag {

bool Graph::before(NodeId first, NodeId second) const {
  if (first >= second) return false;
  const Node& later = node(second);
  return node(first).chain == later.chain || knows(later.clock, first);
}

void Graph::retire(NodeId id) {
  const NodeId until = std::clamp(id, begin(), end());
  retired_ += until - base_;
  base_ = until;
}

NodeId Graph::append(const Operation& op, uint32_t chain, Clocks::Row clock) {
  nodes_.push_back({op, chain, clock, static_cast<uint32_t>(edges_.size()), 0});
  return end() - 1;
}

void Graph::add_edge(NodeId from, EdgeKind kind) {
  edges_.push_back({static_cast<uint32_t>(end() - 1 - from), kind});
  ++nodes_.back().edge_count;
}

size_t Graph::bytes() const {
  return nodes_.capacity() * sizeof(Node) + edges_.capacity() * sizeof(Edge) + clocks_.bytes();
}

}  // namespace tandem::dag
