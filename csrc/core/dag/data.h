// Data edges, by the rule of GrCUDA (Parravicini et al., "DAG-based Scheduling with Resource
// Sharing for Multi-task Applications in a Polyglot GPU Runtime", IPDPS 2021), applied to ranges of
// addresses instead of whole arguments: an operation depends on each earlier one whose use of a
// byte is still active, unless both only read it. Reading leaves the writer active, since a second
// reader has an edge from it too; writing ends all earlier uses of the byte.
//
//   read         after the last write of a byte
//   write        after the reads of a byte since its last write, or after that write if none
//   unresolved   after every active use, and all later uses of memory after it
//   free, alloc  a free writes; freed or newly allocated memory has no earlier uses
//
// Used by one thread. Memory is proportional to the ranges in use in the graph's window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "dag/graph.h"

namespace tandem::dag {

class Data {
 public:
  explicit Data(Graph& graph) : graph_(graph) {}

  // Adds the `count` ranges that the newest node uses. Null means that they are not known, except
  // for memsets, allocations and frees, which say themselves what they use.
  void add(const Access* accesses, size_t count);

  // Operations are missing here: the last user of each range is no longer known.
  void lose();

  // Forgets uses by nodes that the graph has forgotten.
  void compact();

  size_t bytes() const;

  // When a range has this many readers since it was written, the newest reader stands for all: it
  // gets edges from the others (kUnknownData) although none of them writes. This bounds work and
  // memory.
  static constexpr size_t kMostReaders = 256;
  // How many allocation sizes are remembered, for frees that do not state theirs.
  static constexpr size_t kMostAllocations = size_t{1} << 20;

 private:
  struct Use {
    uint64_t end;                 // first address after the range
    NodeId writer;                // kNoNode = not known
    std::vector<NodeId> readers;  // since the last write, oldest first
  };
  using Uses = std::map<uint64_t, Use>;  // by first address; no two overlap
  struct Reason {
    NodeId from;
    EdgeKind kind;
  };

  void add_own(const Operation& op);
  void note(const Access& access);
  void apply(NodeId id, Kind kind);
  void read(NodeId id, uint64_t begin, uint64_t end);
  void write(NodeId id, uint64_t begin, uint64_t end);
  void forget(uint64_t begin, uint64_t end);
  void block(NodeId id);
  void read_use(NodeId id, Use& use);
  void after_uses(const Use& use, EdgeKind after_reads, EdgeKind after_writes);
  void because(NodeId from, EdgeKind kind);
  void because_of_barrier() { because(barrier_, EdgeKind::kUnknownData); }
  Uses::iterator split(uint64_t address);
  void add_edges(NodeId id);

  Graph& graph_;
  Uses uses_;
  // The last unresolved node, which may have used everything that is not in uses_.
  NodeId barrier_ = kNoNode;
  std::unordered_map<uint64_t, uint64_t> allocated_;  // bytes by address
  std::vector<Access> accesses_;                      // of the node being added
  std::vector<Reason> reasons_;
};

}  // namespace tandem::dag
