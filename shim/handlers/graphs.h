// Executable graphs. A graph that a device-side launch starts, on its own or as a tail, is part of
// the graph that the host launched: the host's graph has not ended before those have, and is
// charged for them.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "driver.h"
#include "durations.h"
#include "graph_memory.h"
#include "handlers/common.h"
#include "slots.h"
#include "streams.h"
#include "submit.h"

namespace tandem::shim::handlers {

inline uint64_t duration_key(CUgraphExec graph) {
  return DurationTable::key_of(reinterpret_cast<uint64_t>(graph), 0);
}

template <class Call>
CUresult launch_graph(CUgraphExec graph, CUstream stream) {
  Submission submission;
  submission.kind = shm::RecordKind::kGraph;
  submission.stream = normalise(stream, Call::kPerThread);
  submission.object = reinterpret_cast<uint64_t>(graph);
  submission.measured = true;
  submission.alone = true;
  partition::note_graph();
  return graph_memory::launching(
      graph, [&] { return submit(submission, [&] { return Call::real(graph, stream); }); });
}

// Moves what the launches need to the device; only the driver knows how many bytes that is.
template <class Call>
Submission describe_upload(uint64_t graph, CUstream stream) {
  Submission submission;
  submission.kind = shm::RecordKind::kCopy;
  submission.stream = normalise(stream, Call::kPerThread);
  submission.object = graph;
  submission.direction = Direction::kToDevice;
  return submission;
}
template <class Call>
CUresult upload_graph(CUgraphExec graph, CUstream stream) {
  return graph_memory::launching(graph, [&] {
    return submit(describe_upload<Call>(reinterpret_cast<uint64_t>(graph), stream),
                  [&] { return Call::real(graph, stream); });
  });
}
template <class Call>
CUresult instantiate_graph(CUgraphExec* executable, CUgraph graph,
                           CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  const auto real = [&] { return Call::real(executable, graph, parameters); };
  const bool uploads = parameters && (parameters->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
  const CUresult result = uploads ? submit(describe_upload<Call>(reinterpret_cast<uint64_t>(graph),
                                                                 parameters->hUploadStream),
                                           real)
                                  : real();
  if (result == CUDA_SUCCESS && executable) {
    graph_memory::note_instantiated(*executable, graph);
    if (uploads) graph_memory::note_uploaded(*executable);
  }
  return result;
}

// Another graph may get the same handle.
template <class Call>
CUresult destroy_graph(CUgraphExec graph) {
  g_durations.forget(duration_key(graph));
  const holdings::Entry memory = graph_memory::forget(graph);
  const CUresult result = Call::real(graph);
  if (result != CUDA_SUCCESS && memory.kind != holdings::Kind::kNone) holdings::put(memory);
  return result;
}
// The graph may take longer or shorter from now on; its old duration is the first guess.
template <class Call, class... Rest>
CUresult change_graph(CUgraphExec graph, Rest... rest) {
  const CUresult result = Call::real(graph, rest...);
  if (result == CUDA_SUCCESS) g_durations.doubt(duration_key(graph));
  return result;
}

}  // namespace tandem::shim::handlers
