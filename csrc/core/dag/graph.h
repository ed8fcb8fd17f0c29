// The dependency graph of what a job does: operations in the order in which they were seen, each
// with edges from those it must wait for.
//
// A chain runs its operations one after the other: a stream, or a thread of the host. A node
// carries its chain and a vector clock (Fidge 1988, Mattern 1989): for every other chain, how far
// that chain had come when the node became free to run. So `before` needs one look-up, however long
// the path is.
//
//   order edges  stream, event, legacy default stream, host: what the hardware guarantees. An edge
//                from a node means that all of its chain up to there has ended. Reduced: edges
//                that others imply are left out.
//   data edges   one of the two operations writes what the other uses. They say why an order is
//                needed, not that it is guaranteed, and `before` ignores them.
//
// A window slides over the job's life: retire() forgets old nodes. Nodes keep their numbers for
// good; edges from forgotten nodes are left out. Used by one thread. Memory is proportional to the
// window, which has at most kMostNodes nodes.
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
  kLaunch,
  kGraph,
  kCopy,
  kMemset,
  kMemOp,
  kHostFunc,
  kEventRecord,
  kEventWait,
  kSyncStream,
  kSyncEvent,
  kSyncContext,  // the host waits
  kAlloc,
  kFree,
};
inline constexpr uint32_t kKindCount = 13;

// Operation::flags
inline constexpr uint8_t kHostWaits = 1;      // the call returned when the operation was done
inline constexpr uint8_t kEstimated = 2;      // the duration is predicted, not measured
inline constexpr uint8_t kUnresolved = 4;     // it may touch more memory than its accesses say
inline constexpr uint8_t kUnknownOrder = 8;   // it may have to wait for more than its edges say
inline constexpr uint8_t kProgrammatic = 16;  // may begin before the preceding kernel ends

struct Operation {
  Kind kind = Kind::kLaunch;
  uint8_t flags = 0;
  uint16_t block_threads = 0;  // launches; saturating. 0 = not known
  uint32_t thread = kNone;     // number from Order::add_thread
  uint32_t stream = kNone;     // number from Order::add_stream; kNone = host only
  uint32_t blocks = 0;         // launches; saturating
  uint64_t object = 0;         // function, graph, event, or the address written or allocated
  uint64_t bytes = 0;
  uint64_t submitted_ns = 0;  // when the host submitted it
  uint64_t duration_ns = 0;   // on the GPU; of a wait: on the host. 0 = not known
};

enum class EdgeKind : uint8_t {
  kStream,
  kEvent,
  kLegacy,
  kHost,
  kOverlap,  // begins after the other has begun, and ends after it has ended
  kReadAfterWrite,
  kWriteAfterRead,
  kWriteAfterWrite,
  kUnknownData,
};
constexpr bool is_order(EdgeKind kind) { return kind <= EdgeKind::kOverlap; }

// The bytes [address, address + bytes) that an operation uses.
struct Access {
  uint64_t address = 0;
  uint64_t bytes = 0;
  bool is_const = false;  // only read; otherwise written, and possibly read as well
};
bool overlap(const Access& one, const Access& other);

class Graph {
 public:
  struct Edge {
    uint32_t back;  // the edge comes from the node this many before its target; >= 1
    EdgeKind kind;
  };
  struct Node {
    Operation op;
    uint32_t chain;
    Clocks::Row clock;
    uint32_t first_edge;    // leading to this node: number in edges_, modulo 2^32
    uint32_t first_access;  // likewise in accesses_
  };
  // Limit on nodes at once, and on edges, accesses and clock entries: it keeps their 32-bit numbers
  // unambiguous.
  static constexpr uint64_t kMostNodes = uint64_t{1} << 30;

  // `most_nodes`: the window's limit, at most kMostNodes. Numbering of nodes starts at `first`.
  explicit Graph(uint64_t most_nodes = kMostNodes, NodeId first = 0);

  NodeId begin() const { return nodes_.begin(); }  // the oldest node in the window
  NodeId end() const { return nodes_.end(); }
  size_t size() const { return nodes_.size(); }
  bool has(NodeId id) const { return id - begin() < size(); }
  const Node& node(NodeId id) const { return nodes_[id]; }
  // True if no node can be added until some are retired.
  bool is_full() const;
  uint64_t most_nodes() const { return most_nodes_; }

  // Call see(from, kind) for each order edge, or data edge, from a node in the window to `id`.
  template <class See>
  void each_edge(NodeId id, See see) const {
    each(id, [&](NodeId from, EdgeKind kind) { is_order(kind) ? see(from, kind) : void(); });
  }
  template <class See>
  void each_data_edge(NodeId id, See see) const {
    each(id, [&](NodeId from, EdgeKind kind) { is_order(kind) ? void() : see(from, kind); });
  }

  // Calls see(access) for each known access of the node.
  template <class See>
  void each_access(NodeId id, See see) const {
    const uint32_t last = last_access(id);
    for (uint32_t i = node(id).first_access; i != last; ++i) see(accesses_[i]);
  }

  // True if `first` is sure to have ended when `second` begins. Both must be in the window.
  bool before(NodeId first, NodeId second) const;

  // True if two nodes in the window may use the same bytes, one of them writing; also if it is not
  // known what one of them uses.
  bool may_overlap(NodeId first, NodeId second) const;

  // True if nothing orders the two and nothing needs to: neither is before the other, they share no
  // bytes that one of them writes, and nothing is unknown about them or about what lies between
  // them. False claims nothing.
  bool independent(NodeId first, NodeId second) const;

  // True if operations are missing after `first` and before `second`.
  bool lost_between(NodeId first, NodeId second) const;

  // Forgets the nodes before `id`. Amortised constant time per node.
  void retire(NodeId id);

  // Memory used, in bytes.
  size_t bytes() const;

  // For the rules that make the edges. Edges, accesses and the clock belong to the newest node.
  NodeId append(const Operation& op, uint32_t chain, Clocks::Row clock);
  void add_edge(NodeId from, EdgeKind kind);
  void add_access(const Access& access) { accesses_.push(access); }
  void set_clock(Clocks::Row clock) { nodes_.back().clock = clock; }
  void set_flags(uint8_t flags) { nodes_.back().op.flags |= flags; }
  // Notes that what came before the next node may be ordered with what comes after it in unknown
  // ways.
  void doubt();
  Clocks& clocks() { return clocks_; }
  const Clocks& clocks() const { return clocks_; }
  // Clocks count in positions, which number the nodes from 1; 0 = none.
  uint32_t position(NodeId id) const {
    return has(id) ? static_cast<uint32_t>(id - origin_ + 1) : 0;
  }
  bool knows(Clocks::Row clock, NodeId id) const {
    return !has(id) || clocks_.at(clock, node(id).chain) >= position(id);
  }
  // Changes rows and positions. Calls `rows` with a function, to which `rows` must pass by
  // reference every row that is kept elsewhere.
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
  Ring<NodeId> doubts_;  // each lies before the node with that number
  Clocks clocks_;
  NodeId origin_;  // where positions begin
  static constexpr size_t kSlack = size_t{1} << 16;
  size_t kept_entries_ = 0;  // entries of clocks_ after the last compaction
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
