// Memory that graphs allocate through memory nodes, made by hand or by capturing cuMemAllocAsync.
//
// What counts is what the driver says it has reserved for graphs on a device. That grows when an
// executable graph with memory nodes is uploaded or launched for the first time, and shrinks only
// by cuDeviceGraphMemTrim. The growth is predicted as the sum of the nodes' sizes.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "holdings.h"
#include "line.h"

namespace tandem::shim::graph_memory {

extern std::atomic<bool> g_any;  // relaxed: the process has made a memory node
inline bool any() { return __builtin_expect(g_any.load(std::memory_order_relaxed), 0); }
void note_node();

// After cuGraphInstantiate of any form.
void note_instantiated(CUgraphExec exec, CUgraph graph);
// The graph was uploaded by its instantiation, without a separate call.
void note_uploaded(CUgraphExec exec);
// Before cuGraphExecDestroy; the caller puts the entry back when the driver refuses.
holdings::Entry forget(CUgraphExec exec);

// Bracket an upload or a launch. begin_launch: false when refused.
struct Growth {
  CUgraphExec exec = nullptr;
  uint32_t device = 0;
  uint64_t bytes = 0;
  bool is_first = false;
};
Growth growth_of(CUgraphExec exec);
bool begin_launch(CUgraphExec exec, Growth* growth);
void end_launch(const Growth& growth, CUresult result);

template <class Real>
CUresult launching(CUgraphExec exec, Real real) {
  if (!any()) return real();
  const auto want = [&] {
    const Growth growth = growth_of(exec);
    return line::Want{growth.device, growth.bytes};
  };
  return line::in_line(want, [&] {
    Growth growth;
    if (!begin_launch(exec, &growth)) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = real();
    end_launch(growth, result);
    return result;
  });
}

void refresh(uint32_t device);
void trim(uint32_t device);
void start_afresh();

}  // namespace tandem::shim::graph_memory
