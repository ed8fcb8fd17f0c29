#include "dag/graph.h"

#include <algorithm>

namespace tandem::dag {
namespace {

// Returns the number at or after `begin` whose low 32 bits are `low`.
uint64_t widen(uint32_t low, uint64_t begin) {
  return begin + static_cast<uint32_t>(low - static_cast<uint32_t>(begin));
}

}  // namespace

bool overlap(const Access& one, const Access& other) {
  return one.address < other.address ? other.address - one.address < one.bytes
                                     : one.address - other.address < other.bytes;
}

Graph::Graph(uint64_t most_nodes, NodeId first)
    : most_nodes_(std::min(most_nodes, kMostNodes)),
      nodes_(first),
      edges_(first),
      accesses_(first),
      origin_(first) {}

bool Graph::is_full() const {
  return size() >= most_nodes_ || edges_.size() >= kMostNodes || accesses_.size() >= kMostNodes ||
         clocks_.entries() >= kMostNodes;
}

bool Graph::before(NodeId first, NodeId second) const {
  if (first >= second) return false;
  const Node& later = node(second);
  const bool is_one_by_one = !(later.op.flags & kProgrammatic);
  return (is_one_by_one && node(first).chain == later.chain) || knows(later.clock, first);
}

bool Graph::may_overlap(NodeId first, NodeId second) const {
  if ((node(first).op.flags | node(second).op.flags) & kUnresolved) return true;
  bool found = false;
  each_access(first, [&](const Access& one) {
    each_access(second, [&](const Access& other) {
      found |= !(one.is_const && other.is_const) && overlap(one, other);
    });
  });
  return found;
}

bool Graph::independent(NodeId first, NodeId second) const {
  if (first > second) std::swap(first, second);
  return first != second && !before(first, second) && !may_overlap(first, second) &&
         !lost_between(first, second);
}

bool Graph::lost_between(NodeId first, NodeId second) const {
  uint64_t low = doubts_.begin(), high = doubts_.end();
  while (low < high) {  // the first doubt after `first`
    const uint64_t middle = low + (high - low) / 2;
    if (doubts_[middle] <= first) low = middle + 1;
    else high = middle;
  }
  return low != doubts_.end() && doubts_[low] <= second;
}

void Graph::retire(NodeId id) {
  const NodeId until = std::clamp(id, begin(), end());
  const bool is_all = until == end();
  edges_.drop_until(is_all ? edges_.end() : widen(node(until).first_edge, edges_.begin()));
  accesses_.drop_until(is_all ? accesses_.end()
                              : widen(node(until).first_access, accesses_.begin()));
  nodes_.drop_until(until);
  while (doubts_.size() && doubts_[doubts_.begin()] <= until)
    doubts_.drop_until(doubts_.begin() + 1);
}

NodeId Graph::append(const Operation& op, uint32_t chain, Clocks::Row clock) {
  nodes_.push({op, chain, clock, static_cast<uint32_t>(edges_.end()),
               static_cast<uint32_t>(accesses_.end())});
  return end() - 1;
}

void Graph::add_edge(NodeId from, EdgeKind kind) {
  edges_.push({static_cast<uint32_t>(end() - 1 - from), kind});
}

void Graph::doubt() {
  if (doubts_.size() == 0 || doubts_.back() != end()) doubts_.push(end());
}

size_t Graph::bytes() const {
  return nodes_.bytes() + edges_.bytes() + accesses_.bytes() + doubts_.bytes() + clocks_.bytes();
}

}  // namespace tandem::dag
