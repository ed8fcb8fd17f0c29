// The dependency graph of what a job does: operations in the order in which they were seen, each
// with edges from those it has to wait for.
//
// A chain is what runs its operations one after the other: a stream, or a thread of the host. A node
// carries its chain and a vector clock (Fidge 1988, Mattern 1989): for every other chain, how far it
// had come when the node became free to run. So `before` takes one look, however long the way is.
//
//   order edges  stream, event, legacy default stream, host: what the hardware keeps to. Reduced:
//                none that others imply.
//   data edges   what an operation reads was written by another, or the other way round. They say
//                why an order is needed, not that it is kept.
//
// A window slides over the job's life: retire() forgets what is old. Nodes are numbered from 0 for
// good; edges from forgotten nodes are left out. Of one thread; memory is that of the window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dag/clocks.h"

namespace tandem::dag {

using NodeId = uint64_t;
inline constexpr NodeId kNoNode = UINT64_MAX;
inline constexpr uint32_t kNone = UINT32_MAX;

enum class Kind : uint8_t {
  kLaunch, kGraph, kCopy, kMemset, kMemOp, kHostFunc, kEventRecord, kEventWait,
  kSyncStream, kSyncEvent, kSyncContext,  // the host waits
  kAlloc, kFree,
};
inline constexpr uint32_t kKindCount = 13;

// Operation::flags
inline constexpr uint8_t kHostWaits = 1;     // the call returned when the operation was done
inline constexpr uint8_t kEstimated = 2;     // its duration is predicted, not measured
inline constexpr uint8_t kUnresolved = 4;    // it may touch more memory than its accesses say
inline constexpr uint8_t kUnknownOrder = 8;  // it may have to wait for more than its edges say
inline constexpr uint8_t kProgrammatic = 16;  // may begin before its predecessor in the stream ends

struct Operation {
  Kind kind = Kind::kLaunch;
  uint8_t flags = 0;
  uint32_t thread = kNone;    // as Order::add_thread numbered it
  uint32_t stream = kNone;    // as Order::add_stream did; kNone = of the host alone
  uint32_t blocks = 0;        // launches; saturating
  uint64_t object = 0;        // function, graph, event, or the address written or allocated
  uint64_t bytes = 0;
  uint64_t submitted_ns = 0;  // when the host handed it over
  uint64_t duration_ns = 0;   // on the GPU; of a wait: of the host. 0 = not known
};

enum class EdgeKind : uint8_t { kStream, kEvent, kLegacy, kHost, kReadAfterWrite, kWriteAfterRead,
                                kWriteAfterWrite, kUnknownData };
constexpr bool is_order(EdgeKind kind) { return kind <= EdgeKind::kHost; }

class Graph {
 public:
  struct Edge {
    uint32_t back;  // how many nodes before the node it leads to it comes from; >= 1
    EdgeKind kind;
  };
  struct Node {
    Operation op;
    uint32_t chain;
    Clocks::Row clock;
    uint32_t first_edge;  // of those that lead to it, in edges_
    uint32_t edge_count;
  };

  NodeId begin() const { return base_; }  // the oldest node there is
  NodeId end() const { return base_ + live(); }
  size_t size() const { return live(); }
  bool has(NodeId id) const { return id >= begin() && id < end(); }
  const Node& node(NodeId id) const { return nodes_[at(id)]; }

  // Calls see(from, kind) for each edge that leads to `id` from a node there still is.
  template <class See>
  void each_edge(NodeId id, See see) const {
    const Node& to = node(id);
    for (uint32_t i = 0; i < to.edge_count; ++i) {
      const Edge edge = edges_[to.first_edge + i];
      if (edge.back <= id - base_) see(id - edge.back, edge.kind);
    }
  }

  // Whether `first` has ended for sure when `second` begins. Both there still.
  bool before(NodeId first, NodeId second) const;

  // Forgets the nodes before `id`. Amortised constant time a node.
  void retire(NodeId id);

  // What all of it takes.
  size_t bytes() const;

  // For the rules that make the edges. Edges and the clock are the newest node's.
  NodeId append(const Operation& op, uint32_t chain, Clocks::Row clock);
  void add_edge(NodeId from, EdgeKind kind);
  void set_clock(Clocks::Row clock) { nodes_.back().clock = clock; }
  Clocks& clocks() { return clocks_; }
  const Clocks& clocks() const { return clocks_; }
  // Positions are what clocks count in: of nodes from 1 on, 0 = none.
  uint32_t position(NodeId id) const { return has(id) ? static_cast<uint32_t>(at(id) + 1) : 0; }
  bool knows(Clocks::Row clock, NodeId id) const {
    return !has(id) || clocks_.at(clock, node(id).chain) >= position(id);
  }
  // Rows and positions change; `rows` is called with a function to which it has to give, by
  // reference, every row that is kept elsewhere.
  template <class Rows>
  void compact(Rows rows);
  bool wants_compaction() const { return retired_ > live() + 1024; }

 private:
  size_t at(NodeId id) const { return retired_ + (id - base_); }
  size_t live() const { return nodes_.size() - retired_; }

  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  Clocks clocks_;
  NodeId base_ = 0;
  size_t retired_ = 0;  // nodes at the front that are forgotten, and not yet removed
};

template <class Rows>
void Graph::compact(Rows rows) {
  Clocks::Mover mover(clocks_, static_cast<uint32_t>(retired_));
  for (size_t i = retired_; i < nodes_.size(); ++i) mover.move(nodes_[i].clock);
  rows([&](Clocks::Row& row) { mover.move(row); });
  mover.finish();
  const uint32_t first = retired_ < nodes_.size() ? nodes_[retired_].first_edge
                                                  : static_cast<uint32_t>(edges_.size());
  edges_.erase(edges_.begin(), edges_.begin() + first);
  nodes_.erase(nodes_.begin(), nodes_.begin() + static_cast<ptrdiff_t>(retired_));
  for (Node& node : nodes_) node.first_edge -= first;
  retired_ = 0;
}

}  // namespace tandem::dag
