// A part of a graph to be analysed: the nodes [first, last), and predicates that classify
// operations.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dag/graph.h"

namespace tandem::dag::analysis {

struct Window {
  const Graph& graph;
  NodeId first;
  NodeId last;

  size_t size() const { return last - first; }
  bool has(NodeId id) const { return id >= first && id < last; }
  const Operation& op(NodeId id) const { return graph.node(id).op; }
};

constexpr bool is_kernel(Kind kind) { return kind == Kind::kLaunch || kind == Kind::kGraph; }
constexpr bool is_transfer(Kind kind) { return kind == Kind::kCopy; }
constexpr bool runs_on_gpu(Kind kind) { return kind <= Kind::kMemset; }
constexpr bool is_wait(Kind kind) {
  return kind >= Kind::kSyncStream && kind <= Kind::kSyncContext;
}

// The host does nothing else until the operation has ended.
constexpr bool holds_host(const Operation& op) { return is_wait(op.kind) || op.flags & kHostWaits; }

// Times come from records, so nothing may be assumed about them: these saturate.
constexpr uint64_t plus(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }
constexpr uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

}  // namespace tandem::dag::analysis
