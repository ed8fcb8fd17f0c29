// Memory that graphs allocate.
//
// An allocation node has its address from its creation on. Its pages are backed, that is, agreed
// with the ledger, when an executable graph with the node is uploaded or first launched, and stay
// so until that exec is destroyed. Backing that nobody needs any more is kept for the next graph
// until it is trimmed.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "api.h"
#include "graph.h"

namespace softgpu {

struct GraphExec;
struct Pool;
struct StreamCall;

// Shared by the node, its clones and, while allocated, itself.
struct GraphAllocation : std::enable_shared_from_this<GraphAllocation> {
  GraphAllocation(Runtime& runtime, uintptr_t address, size_t size, int where);
  ~GraphAllocation();
  GraphAllocation(const GraphAllocation&) = delete;
  GraphAllocation& operator=(const GraphAllocation&) = delete;

  Runtime& rt;
  const uintptr_t begin;
  const size_t bytes;
  const int device;
  std::map<int, CUmemAccess_flags> access{};  // of other devices
  unsigned freed_by = 0;                      // id of the graph that has a free node for it
  bool live = false;   // a launch has allocated it and nothing has freed it since
  uint32_t users = 0;  // executable graphs that keep it backed
  Backing backing{};
};

CUresult set_alloc(Call& call, GraphNode* node, CUDA_MEM_ALLOC_NODE_PARAMS* params);
CUresult set_free(Call& call, GraphNode* node, CUdeviceptr pointer);
// The counterparts for cuMemAllocAsync and cuMemFreeAsync in a capturing stream.
CUresult capture_alloc(StreamCall& on, const Pool& pool, size_t bytes, CUdeviceptr* out);
CUresult capture_free(StreamCall& on, CUdeviceptr pointer);

// Backs a graph's allocations with pages before a launch. Releases the mutex if it has to ask.
CUresult back_with_memory(Call& call, GraphExec& exec);
// Checks a launch: it may allocate only what is not allocated, and free only what is.
CUresult check_allocations(const GraphExec& exec);
void note_launch(GraphExec& exec);
void release_graph_memory(GraphExec& exec);

// For frees by the program, in a stream or not. Returns false if `pointer` is not a graph's memory.
bool free_graph_memory(Runtime& rt, CUdeviceptr pointer, CUresult* result);

}  // namespace softgpu
