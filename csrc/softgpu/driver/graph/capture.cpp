#include "capture.h"

#include <algorithm>
#include <memory>
#include <unordered_set>

#include "graph_params.h"
#include "green_context.h"
#include "runtime.h"

namespace softgpu {
namespace {

Capture* find_capture(Runtime& rt, uint64_t id) {
  for (Capture* capture : rt.captures) {
    if (capture->id == id) return capture;
  }
  return nullptr;
}

CUresult refuse(Capture* capture, CUresult error) {
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  capture->invalid = true;
  return error;
}

bool forbids(const Capture& capture, const ThreadState& thread) {
  if (thread.capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (capture.thread == &thread) return capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return thread.capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
         capture.mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void join(std::vector<GraphEdge>* tail, const std::vector<GraphEdge>& more) {
  for (const GraphEdge& edge : more) {
    const bool known = std::any_of(tail->begin(), tail->end(),
                                   [&](const GraphEdge& own) { return own.node == edge.node; });
    if (!known) tail->push_back(edge);
  }
}

// The kernel may begin before the one in front of it has ended.
void make_programmatic(GraphNode* node) {
  CUgraphEdgeData data{};
  data.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  data.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  for (GraphEdge& edge : node->dependencies) {
    if (edge.node->type != CU_GRAPH_NODE_TYPE_KERNEL) continue;
    edge.data = data;
    for (GraphEdge& back : edge.node->dependents) {
      if (back.node == node) back.data = data;
    }
  }
}

// Whether the tail of some stream, even of one that is gone, does not lead to the origin's tail.
// Goes by the order that the capture itself made.
bool has_unjoined_fork(const Capture& capture) {
  std::unordered_set<const GraphNode*> joined;
  std::vector<const GraphNode*> pending;
  for (const GraphEdge& edge : capture.origin->capture_tail) pending.push_back(edge.node);
  while (!pending.empty()) {
    const GraphNode* node = pending.back();
    pending.pop_back();
    if (!joined.insert(node).second) continue;
    const auto before = capture.after.find(node);
    if (before == capture.after.end()) {
      for (const GraphEdge& edge : node->dependencies) pending.push_back(edge.node);
    } else {
      pending.insert(pending.end(), before->second.begin(), before->second.end());
    }
  }
  const auto loose = [&](const GraphNode* node) { return !joined.count(node); };
  if (std::any_of(capture.loose.begin(), capture.loose.end(), loose)) return true;
  return std::any_of(capture.streams.begin(), capture.streams.end(), [&](const Stream* stream) {
    return std::any_of(stream->capture_tail.begin(), stream->capture_tail.end(),
                       [&](const GraphEdge& edge) { return loose(edge.node); });
  });
}

}  // namespace

CUresult refuse_unsafe(Runtime& rt) {
  if (rt.captures.empty()) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture : rt.captures) {
    if (!forbids(*capture, this_thread())) continue;
    capture->invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

CUresult refuse_synchronization(Runtime& rt, const Context* context) {
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture : rt.captures) {
    for (const Stream* stream : capture->streams) {
      if (stream->context != context) continue;
      capture->invalid = true;
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  return result;
}

CUresult refuse_implicit(Runtime& rt, const Stream* legacy, bool invalidate) {
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture : rt.captures) {
    for (const Stream* stream : capture->streams) {
      if (stream->context != legacy->context || !stream->blocking()) continue;
      if (invalidate) capture->invalid = true;
      result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
  }
  return result;
}

CUresult refuse_captured(Runtime& rt, const Event* event) {
  if (event->capture_id == 0) return CUDA_SUCCESS;
  if (Capture* capture = find_capture(rt, event->capture_id)) capture->invalid = true;
  return CUDA_ERROR_CAPTURED_EVENT;
}

GraphNode* capture_node(StreamCall& on, CUgraphNodeType type) {
  Capture* capture = on.stream->capture;
  if (capture->invalid) return nullptr;
  GraphNode* node = make_node(on.call.rt, capture->graph, type);
  node->context = context_of(*on.stream);
  auto& after = capture->after[node];
  for (const GraphEdge& edge : on.stream->capture_tail) {
    connect(edge.node, node, edge.data);
    after.push_back(edge.node);
  }
  on.stream->capture_tail.assign(1, GraphEdge{node, {}});
  return node;
}

CUresult capture_work(StreamCall& on, const std::vector<Work>& work) {
  Capture* capture = on.stream->capture;
  if (work.empty()) return CUDA_SUCCESS;
  const CUgraphNodeType type =
      work.size() > 1 ? CU_GRAPH_NODE_TYPE_BATCH_MEM_OP : node_type(work.front());
  if (const CUresult bad = may_hold(*capture->graph, type)) return refuse(capture, bad);
  GraphNode* node = capture_node(on, type);
  if (!node) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  take_work(node, work);
  if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
    node->attributes[CU_LAUNCH_ATTRIBUTE_PRIORITY].priority = on.stream->priority;
  }
  return CUDA_SUCCESS;
}

void capture_attributes(StreamCall& on, const CUlaunchConfig& config) {
  GraphNode* node = on.stream->capture_tail.front().node;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    if (config.attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        config.attrs[i].value.programmaticStreamSerializationAllowed) {
      make_programmatic(node);
    }
    if (is_node_attribute(config.attrs[i].id)) {
      node->attributes[config.attrs[i].id] = config.attrs[i].value;
    }
  }
}

CUresult capture_launch(StreamCall& on, const Graph& graph) {
  Capture* capture = on.stream->capture;
  if (contains(graph, is_memory_node) || contains(graph, is_conditional_node)) {
    return refuse(capture, CUDA_ERROR_NOT_SUPPORTED);
  }
  GraphNode* node = capture_node(on, CU_GRAPH_NODE_TYPE_GRAPH);
  if (!node) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  node->inner.push_back(clone_graph(on.call.rt, graph));
  node->inner.back()->parent = node;
  return CUDA_SUCCESS;
}

CUresult capture_record(StreamCall& on, Event* event, bool external) {
  Capture* capture = on.stream->capture;
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (external) {
    Work work;
    work.event = event;
    return capture_work(on, {work});
  }
  event->capture_id = capture->id;
  event->captured = on.stream->capture_tail;
  return CUDA_SUCCESS;
}

CUresult capture_wait(StreamCall& on, Event* event, bool external) {
  Stream* stream = on.stream;
  Capture* theirs = find_capture(on.call.rt, event->capture_id);
  if (!stream->capture) {
    if (!theirs) return CUDA_ERROR_CAPTURED_EVENT;  // of a capture that has ended
    if (theirs->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (external) return refuse(theirs, CUDA_ERROR_INVALID_VALUE);
    if (stream->legacy) return refuse(theirs, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    stream->capture = theirs;
    stream->capture_tail = event->captured;
    theirs->streams.push_back(stream);
    return CUDA_SUCCESS;
  }
  Capture* ours = stream->capture;
  if (ours->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (external) {
    GraphNode* node = capture_node(on, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
    node->event = event;
    node->work.assign(1, Work());
    return CUDA_SUCCESS;
  }
  if (event->capture_id == 0) return refuse(ours, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  if (!theirs) return refuse(ours, CUDA_ERROR_CAPTURED_EVENT);
  if (theirs != ours) {
    theirs->invalid = true;
    return refuse(ours, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  join(&stream->capture_tail, event->captured);
  return CUDA_SUCCESS;
}

CUresult begin_capture(Runtime& rt, Stream* stream, CUstreamCaptureMode mode, Graph* into,
                       std::vector<GraphEdge> tail) {
  auto* capture = new Capture;
  capture->id = rt.next_number();
  capture->mode = mode;
  capture->thread = &this_thread();
  capture->origin = stream;
  capture->owns_graph = into == nullptr;
  capture->graph = into ? into : make_graph(rt);
  capture->streams.push_back(stream);
  ++capture->graph->captures;
  stream->capture = capture;
  stream->capture_tail = std::move(tail);
  rt.captures.push_back(capture);
  return CUDA_SUCCESS;
}

CUresult end_capture(Runtime& rt, Capture* capture, Graph** graph) {
  CUresult result = CUDA_SUCCESS;
  if (capture->invalid) {
    result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  } else if (has_unjoined_fork(*capture)) {
    result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  }
  for (Stream* stream : capture->streams) {
    stream->capture = nullptr;
    stream->capture_tail.clear();
  }
  rt.captures.erase(std::find(rt.captures.begin(), rt.captures.end(), capture));
  --capture->graph->captures;
  *graph = result ? nullptr : capture->graph;
  if (result && capture->owns_graph) destroy_graph(rt, std::unique_ptr<Graph>(capture->graph));
  delete capture;
  return result;
}

void leave_capture(Runtime& rt, Stream* stream) {
  Capture* capture = stream->capture;
  if (!capture) return;
  if (capture->origin == stream) {  // no call can end it any more
    capture->invalid = true;
    Graph* none;
    (void)end_capture(rt, capture, &none);
    return;
  }
  for (const GraphEdge& edge : stream->capture_tail) capture->loose.push_back(edge.node);
  auto& streams = capture->streams;
  streams.erase(std::find(streams.begin(), streams.end(), stream));
  stream->capture = nullptr;
}

}  // namespace softgpu
