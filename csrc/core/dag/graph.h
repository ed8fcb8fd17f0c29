// The dependency graph of what a job does: operations in the order in which they were seen, each
// with edges from those it has to wait for.
//
// A chain is what runs its operations one after the other: a stream, or a thread of the host. A node
// carries its chain and a vector clock (Fidge 1988, Mattern 1989): for every other chain, how far it
// had come when the node became free to run. So `before` takes one look, however long the way is.
//
//   order edges  stream, event, legacy default stream, host: what the hardware keeps to. One from
//                a node means that all of its chain up to there has ended. Reduced: none that
//                others imply.
//   data edges   what an operation reads was written by another, or the other way round. They say
//                why an order is needed, not that it is kept, and `before` does not know them.
//
// A window slides over the job's life: retire() forgets what is old. Nodes keep their numbers for
// good; edges from forgotten nodes are left out. Of one thread; memory is that of the window, of at
// most kMostNodes nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dag/clocks.h"
#include "dag/ring.h"

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
inline constexpr uint8_t kProgrammatic = 16;  // may begin before the kernel before it ends

struct Operation {
  Kind kind = Kind::kLaunch;
  uint8_t flags = 0;
  uint16_t block_threads = 0;  // launches; saturating. 0 = not known
  uint32_t thread = kNone;    // as Order::add_thread numbered it
  uint32_t stream = kNone;    // as Order::add_stream did; kNone = of the host alone
  uint32_t blocks = 0;        // launches; saturating
  uint64_t object = 0;        // function, graph, event, or the address written or allocated
  uint64_t bytes = 0;
  uint64_t submitted_ns = 0;  // when the host handed it over
  uint64_t duration_ns = 0;   // on the GPU; of a wait: of the host. 0 = not known
};

enum class EdgeKind : uint8_t {
  kStream, kEvent, kLegacy, kHost,
  kOverlap,  // begins after the other has begun, ends after it has ended
  kReadAfterWrite, kWriteAfterRead, kWriteAfterWrite, kUnknownData,
};
constexpr bool is_order(EdgeKind kind) { return kind <= EdgeKind::kOverlap; }

// Bytes [address, address + bytes) that an operation uses.
struct Access {
  uint64_t address = 0;
  uint64_t bytes = 0;
  bool is_const = false;  // only read; else written, and perhaps read as well
};
bool overlap(const Access& one, const Access& other);

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
    uint32_t first_edge;    // of those that lead to it: number in edges_, modulo 2^32
    uint32_t first_access;  // the same in accesses_
  };
  // So many nodes at once, and so many edges, accesses and entries of clocks, keep what has 32 bits
  // unambiguous.
  static constexpr uint64_t kMostNodes = uint64_t{1} << 30;

  // `most_nodes`: the window's limit, at most kMostNodes. Nodes are numbered from `first` on.
  explicit Graph(uint64_t most_nodes = kMostNodes, NodeId first = 0);

  NodeId begin() const { return nodes_.begin(); }  // the oldest node there is
  NodeId end() const { return nodes_.end(); }
  size_t size() const { return nodes_.size(); }
  bool has(NodeId id) const { return id - begin() < size(); }
  const Node& node(NodeId id) const { return nodes_[id]; }
  // No more nodes until some are retired.
  bool is_full() const;
  uint64_t most_nodes() const { return most_nodes_; }

  // Call see(from, kind) for each order edge, or data edge, that leads to `id` from a node there
  // still is.
  template <class See>
  void each_edge(NodeId id, See see) const {
    each(id, [&](NodeId from, EdgeKind kind) { is_order(kind) ? see(from, kind) : void(); });
  }
  template <class See>
  void each_data_edge(NodeId id, See see) const {
    each(id, [&](NodeId from, EdgeKind kind) { is_order(kind) ? void() : see(from, kind); });
  }

  // Calls see(access) for each access of the node that is known.
  template <class See>
  void each_access(NodeId id, See see) const {
    const uint32_t last = last_access(id);
    for (uint32_t i = node(id).first_access; i != last; ++i) see(accesses_[i]);
  }

  // Whether `first` has ended for sure when `second` begins. Both there still.
  bool before(NodeId first, NodeId second) const;

  // Whether two nodes that are there may use the same bytes, one of them writing; true too where
  // it is not known what one of them uses.
  bool may_overlap(NodeId first, NodeId second) const;

  // Whether nothing puts the two in an order, and nothing needs one: neither is before the other,
  // they share no bytes that one of them writes, and nothing is unknown about either of them or
  // about what lies between. False is no claim.
  bool independent(NodeId first, NodeId second) const;

  // Whether operations are missing behind `first` and before `second`.
  bool lost_between(NodeId first, NodeId second) const;

  // Forgets the nodes before `id`. Amortised constant time a node.
  void retire(NodeId id);

  // What all of it takes.
  size_t bytes() const;

  // For the rules that make the edges. Edges, accesses and the clock are the newest node's.
  NodeId append(const Operation& op, uint32_t chain, Clocks::Row clock);
  void add_edge(NodeId from, EdgeKind kind);
  void add_access(const Access& access) { accesses_.push(access); }
  void set_clock(Clocks::Row clock) { nodes_.back().clock = clock; }
  void set_flags(uint8_t flags) { nodes_.back().op.flags |= flags; }
  // What lies before the next node may be ordered with what comes after in ways that are not known.
  void doubt();
  Clocks& clocks() { return clocks_; }
  const Clocks& clocks() const { return clocks_; }
  // Positions are what clocks count in: of nodes from 1 on, 0 = none.
  uint32_t position(NodeId id) const {
    return has(id) ? static_cast<uint32_t>(id - origin_ + 1) : 0;
  }
  bool knows(Clocks::Row clock, NodeId id) const {
    return !has(id) || clocks_.at(clock, node(id).chain) >= position(id);
  }
  // Rows and positions change; `rows` is called with a function to which it has to give, by
  // reference, every row that is kept elsewhere.
  template <class Rows>
  void compact(Rows rows);
  bool wants_compaction() const {
    const uint64_t retired = begin() - origin_;
    return retired > size() + 128 || (retired && clocks_.entries() > 2 * kept_entries_ + kSlack);
  }

 private:
  template <class See>
  void each(NodeId id, See see) const {
    const uint32_t last = last_edge(id);
    for (uint32_t i = node(id).first_edge; i != last; ++i) {
      const Edge edge = edges_[i];
      if (edge.back <= id - begin()) see(id - edge.back, edge.kind);
    }
  }
  uint32_t last_edge(NodeId id) const {
    return id + 1 < end() ? node(id + 1).first_edge : static_cast<uint32_t>(edges_.end());
  }
  uint32_t last_access(NodeId id) const {
    return id + 1 < end() ? node(id + 1).first_access : static_cast<uint32_t>(accesses_.end());
  }

  uint64_t most_nodes_;
  Ring<Node> nodes_;
  Ring<Edge> edges_;
  Ring<Access> accesses_;
  Ring<NodeId> doubts_;  // each lies before that node
  Clocks clocks_;
  NodeId origin_;  // where positions begin
  static constexpr size_t kSlack = size_t{1} << 16;
  size_t kept_entries_ = 0;  // of clocks, by the last compaction
};

template <class Rows>
void Graph::compact(Rows rows) {
  Clocks::Mover mover(clocks_, static_cast<uint32_t>(begin() - origin_));
  for (NodeId id = begin(); id < end(); ++id) mover.move(nodes_[id].clock);
  rows([&](Clocks::Row& row) { mover.move(row); });
  mover.finish();
  origin_ = begin();
  kept_entries_ = clocks_.entries();
}

}  // namespace tandem::dag
