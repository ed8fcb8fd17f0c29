// Stream capture: what is asked of a capturing stream becomes nodes of a graph.
//
// A capture begins in one stream, its origin; others join it by waiting for an event that was
// recorded in it. Each stream has a tail: the nodes that its next one will depend on. A captured
// event holds the tail of its stream at the time. Whatever would connect captured work with work
// that runs is refused and invalidates the capture, which then can only be ended.
#pragma once

#include <cuda.h>

#include <unordered_map>
#include <vector>

#include "graph.h"

namespace softgpu {

struct StreamCall;

struct Capture {
  uint64_t id;
  CUstreamCaptureMode mode;
  const void* thread;  // that began it
  Stream* origin;
  Graph* graph;
  bool owns_graph;
  bool invalid = false;
  std::vector<Stream*> streams;  // the origin first
  // What the capture itself has ordered; the program may change the graph's own edges meanwhile.
  std::unordered_map<const GraphNode*, std::vector<GraphNode*>> after;
  std::vector<GraphNode*> loose;  // tails of streams that are gone
};

// Whether this thread may make a call that captures cannot see; invalidates those that forbid it.
CUresult refuse_unsafe(Runtime& rt);
// Waiting for a whole context, when it has capturing streams; invalidates their captures.
CUresult refuse_synchronization(Runtime& rt, const Context* context);
// Use of the legacy stream while a blocking stream of its context captures.
CUresult refuse_implicit(Runtime& rt, const Stream* legacy, bool invalidate);

CUresult capture_work(StreamCall& on, const std::vector<Work>& work);
// The attributes that the launch just captured leaves on its node.
void capture_attributes(StreamCall& on, const CUlaunchConfig& config);
CUresult capture_launch(StreamCall& on, const Graph& graph);
// A node of that type at the end of the stream. Null: the capture is invalid.
GraphNode* capture_node(StreamCall& on, CUgraphNodeType type);
CUresult capture_record(StreamCall& on, Event* event, bool external);
// For streams that capture and for events that were captured.
CUresult capture_wait(StreamCall& on, Event* event, bool external);

// `into` null: a new graph, which the capture owns until it ends.
CUresult begin_capture(Runtime& rt, Stream* stream, CUstreamCaptureMode mode, Graph* into,
                       std::vector<GraphEdge> tail);
// In any case the capture is gone afterwards. `*graph` is null when it was of no use.
CUresult end_capture(Runtime& rt, Capture* capture, Graph** graph);

// An event whose newest record was captured stays without an answer until it is recorded again.
CUresult refuse_captured(Runtime& rt, const Event* event);

// The stream is about to go.
void leave_capture(Runtime& rt, Stream* stream);

}  // namespace softgpu
