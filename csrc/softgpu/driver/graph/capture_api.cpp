// The driver API of stream capture.
#include <utility>

#include "api.h"
#include "capture.h"

namespace softgpu {
namespace {

CUresult read_tail(Runtime& rt, const Graph* graph, const CUgraphNode* nodes,
                   const CUgraphEdgeData* data, size_t count, std::vector<GraphEdge>* tail) {
  // The node to come is not known yet; check as for a kernel, which may have all kinds of edges.
  const CUresult bad = check_dependencies(rt, graph, nodes, data, count, CU_GRAPH_NODE_TYPE_KERNEL);
  if (bad) return bad;
  for (size_t i = 0; i < count; ++i) {
    tail->push_back({reinterpret_cast<GraphNode*>(nodes[i]), data ? data[i] : CUgraphEdgeData{}});
  }
  return CUDA_SUCCESS;
}

CUresult may_begin(const StreamCall& on, CUstreamCaptureMode mode) {
  if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (on.stream->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return on.stream->capture ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
}

struct Info {
  CUstreamCaptureStatus* status;
  cuuint64_t* id;
  CUgraph* graph;
  const CUgraphNode** nodes;
  const CUgraphEdgeData** data;
  size_t* count;
};

CUresult get_info(CUstream handle, const Info& info) {
  StreamCall on;
  if (const CUresult bad = on.find(handle)) return bad;
  if (!info.status || (info.data && !info.nodes)) return CUDA_ERROR_INVALID_VALUE;
  Stream* stream = on.stream;
  if (stream->legacy) {
    if (const CUresult bad = refuse_implicit(on.call.rt, stream, false)) return bad;
  }
  const Capture* capture = stream->capture;
  if (!capture || capture->invalid) {
    *info.status = capture ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  }
  stream->tail_nodes.clear();
  stream->tail_data.clear();
  bool plain = true;
  for (const GraphEdge& edge : stream->capture_tail) {
    stream->tail_nodes.push_back(reinterpret_cast<CUgraphNode>(edge.node));
    stream->tail_data.push_back(edge.data);
    plain = plain && is_plain(edge.data);
  }
  if (info.nodes && !info.data && !plain) return CUDA_ERROR_LOSSY_QUERY;
  *info.status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (info.id) *info.id = capture->id;
  if (info.graph) *info.graph = reinterpret_cast<CUgraph>(capture->graph);
  if (info.nodes) *info.nodes = stream->tail_nodes.data();
  if (info.data) *info.data = stream->tail_data.data();
  if (info.count) *info.count = stream->tail_nodes.size();
  return CUDA_SUCCESS;
}

CUresult update_dependencies(CUstream handle, const CUgraphNode* nodes, const CUgraphEdgeData* data,
                             size_t count, unsigned flags) {
  StreamCall on;
  if (const CUresult bad = on.find(handle)) return bad;
  Stream* stream = on.stream;
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  std::vector<GraphEdge> tail;
  const Graph* graph = stream->capture->graph;
  if (const CUresult bad = read_tail(on.call.rt, graph, nodes, data, count, &tail)) return bad;
  if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->capture_tail.clear();
  for (const GraphEdge& edge : tail) {
    bool known = false;
    for (const GraphEdge& own : stream->capture_tail) known = known || own.node == edge.node;
    if (!known) stream->capture_tail.push_back(edge);
  }
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) {
  StreamCall on;
  if (const CUresult bad = on.find(handle)) return bad;
  if (const CUresult bad = may_begin(on, mode)) return bad;
  return begin_capture(on.call.rt, on.stream, mode, nullptr, {});
}

SOFTGPU_API cuStreamBeginCapture(CUstream handle) {
  return cuStreamBeginCapture_v2(handle, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

SOFTGPU_API cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph_handle,
                                        const CUgraphNode* dependencies,
                                        const CUgraphEdgeData* data, size_t count,
                                        CUstreamCaptureMode mode) {
  if (!graph_handle) return CUDA_ERROR_INVALID_VALUE;
  StreamCall on;
  if (const CUresult bad = on.find(handle)) return bad;
  if (const CUresult bad = may_begin(on, mode)) return bad;
  auto* graph = checked<Graph>(on.call.rt.graphs, graph_handle);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  std::vector<GraphEdge> tail;
  if (const CUresult bad = read_tail(on.call.rt, graph, dependencies, data, count, &tail)) {
    return bad;
  }
  return begin_capture(on.call.rt, on.stream, mode, graph, std::move(tail));
}

SOFTGPU_API cuStreamEndCapture(CUstream handle, CUgraph* out) {
  StreamCall on;
  if (const CUresult bad = on.find(handle)) return bad;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  Capture* capture = on.stream->capture;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != &this_thread()) {
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  }
  if (capture->origin != on.stream) {
    capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  Graph* graph = nullptr;
  const CUresult result = end_capture(on.call.rt, capture, &graph);
  *out = reinterpret_cast<CUgraph>(graph);
  return result;
}

SOFTGPU_API cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return get_info(handle, {status, nullptr, nullptr, nullptr, nullptr, nullptr});
}

SOFTGPU_API cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return get_info(handle, {status, id, nullptr, nullptr, nullptr, nullptr});
}
SOFTGPU_API cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status,
                                      cuuint64_t* id, CUgraph* graph, const CUgraphNode** nodes,
                                      size_t* count) {
  return get_info(handle, {status, id, graph, nodes, nullptr, count});
}
SOFTGPU_API cuStreamGetCaptureInfo_v3(CUstream handle, CUstreamCaptureStatus* status,
                                      cuuint64_t* id, CUgraph* graph, const CUgraphNode** nodes,
                                      const CUgraphEdgeData** data, size_t* count) {
  return get_info(handle, {status, id, graph, nodes, data, count});
}

SOFTGPU_API cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode* nodes, size_t count,
                                              unsigned int flags) {
  return update_dependencies(handle, nodes, nullptr, count, flags);
}
SOFTGPU_API cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode* nodes,
                                                 const CUgraphEdgeData* data, size_t count,
                                                 unsigned int flags) {
  return update_dependencies(handle, nodes, data, count, flags);
}

SOFTGPU_API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, this_thread().capture_mode);
  return CUDA_SUCCESS;
}
