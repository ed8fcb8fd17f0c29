// Data edges, by the rule of GrCUDA (Parravicini et al., "DAG-based Scheduling with Resource Sharing
// for Multi-task Applications in a Polyglot GPU Runtime", IPDPS 2021) on ranges of addresses instead
// of whole arguments: an operation depends on each earlier one whose use of a byte is still active,
// unless both only read it. Reading leaves the writer active, for a second reader has an edge from it
// too; writing ends all earlier uses of the byte.
//
//   read         after the last write of a byte
//   write        after the reads of a byte since its last write, or after that write if there is none
//   unresolved   after every use that is active, and all later uses of memory after it
//   free, alloc  a free writes; and what is freed or newly allocated has no earlier uses
//
// Of one thread. Memory is that of the ranges in use in the graph's window.
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

  // What the newest node uses, `count` of them; none that is null means that it is not known. Known
  // without being told: what memsets, allocations and frees use.
  void add(const Access* accesses, size_t count);

  // Operations are missing here: who used what last is not known any more.
  void lose();

  // Forgets uses by nodes that the graph has forgotten.
  void compact();

  size_t bytes() const;

  // With so many readers of a range since it was written the newest stands for all: it gets edges
  // from them, though none of them writes (kUnknownData). So work and memory stay bounded.
  static constexpr size_t kMostReaders = 256;
  // Sizes of allocations that are remembered for frees that do not say theirs.
  static constexpr size_t kMostAllocations = size_t{1} << 20;

 private:
  struct Use {
    uint64_t end;  // first address behind the range
    NodeId writer;  // kNoNode = none that is known
    std::vector<NodeId> readers;  // since then, oldest first
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
  NodeId barrier_ = kNoNode;  // the last unresolved node: it may have used all that is not in uses_
  std::unordered_map<uint64_t, uint64_t> allocated_;  // bytes by address
  std::vector<Access> accesses_;  // of the node being added
  std::vector<Reason> reasons_;
};

}  // namespace tandem::dag
