// Stream capture: calls on a capturing stream become nodes of a graph.
//
// A capture begins in one stream, its origin. Other streams join by waiting for an event that was
// recorded in the capture. Each stream has a tail: the nodes that its next node will depend on. A
// captured event holds the tail that its stream had at the time. Anything that would connect
// captured work with running work is refused and invalidates the capture, which can then only be
// ended.
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
  const void* thread;  // the one that began it
  Stream* origin;
  Graph* graph;
  bool owns_graph;
  bool invalid = false;
  std::vector<Stream*> streams;  // the origin first
  // The order made by the capture itself; the program may change the graph's own edges meanwhile.
  std::unordered_map<const GraphNode*, std::vector<GraphNode*>> after;
  std::vector<GraphNode*> loose;  // tails of streams that are gone
};

// Checks whether this thread may make a call that captures cannot see; if not, invalidates the
// captures that forbid it.
CUresult refuse_unsafe(Runtime& rt);
// Refuses to wait for a whole context that has capturing streams; invalidates their captures.
CUresult refuse_synchronization(Runtime& rt, const Context* context);
// Refuses use of the legacy stream while a blocking stream of its context captures.
CUresult refuse_implicit(Runtime& rt, const Stream* legacy, bool invalidate);

CUresult capture_work(StreamCall& on, const std::vector<Work>& work);
// Puts the attributes of the launch just captured on its node.
void capture_attributes(StreamCall& on, const CUlaunchConfig& config);
CUresult capture_launch(StreamCall& on, const Graph& graph);
// Adds a node of that type at the end of the stream. Returns null if the capture is invalid.
GraphNode* capture_node(StreamCall& on, CUgraphNodeType type);
CUresult capture_record(StreamCall& on, Event* event, bool external);
// For streams that capture, and for events that were captured.
CUresult capture_wait(StreamCall& on, Event* event, bool external);

// If `into` is null, creates a graph, which the capture owns until it ends.
CUresult begin_capture(Runtime& rt, Stream* stream, CUstreamCaptureMode mode, Graph* into,
                       std::vector<GraphEdge> tail);
// The capture is gone afterwards in any case. `*graph` is null if the capture failed.
CUresult end_capture(Runtime& rt, Capture* capture, Graph** graph);

// Refuses an event whose newest record was captured: it has no answer until it is recorded again.
CUresult refuse_captured(Runtime& rt, const Event* event);

// Call this before the stream goes.
void leave_capture(Runtime& rt, Stream* stream);

}  // namespace softgpu
