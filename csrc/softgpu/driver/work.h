// From what a program describes to Work: for driver calls and for the nodes of graphs.
#pragma once

#include <cuda.h>

#include "objects.h"

namespace softgpu {

class Runtime;

struct LaunchPlan;

CUresult kernel_work(const Runtime& rt, Function* function, const CUlaunchConfig& config,
                     void** params, void** extra, LaunchPlan* plan, Work* work);
// Where an end of a copy is: what decides when a call may return.
enum class Side { kPageable, kPinned, kDevice };
struct CopySides {
  Side source, destination;
};
// The copy as such; what is true of it in a stream only (staging, waiting) is the caller's.
CUresult copy_work(Runtime& rt, const CUDA_MEMCPY3D& copy, Work* work, CopySides* sides = nullptr);
OpKind copy_kind(const CopySides& sides);
CUresult memset_work(Runtime& rt, const CUDA_MEMSET_NODE_PARAMS& set, Work* work);
// A barrier becomes a marker: everything is ordered here.
CUresult memop_work(Runtime& rt, const CUstreamBatchMemOpParams& memop, Work* work);
Work host_work(CUhostFn function, void* user);

// The reverse, for work that was captured.
CUDA_MEMCPY3D describe_copy(const Work& work);
CUDA_MEMSET_NODE_PARAMS describe_memset(const Work& work);
CUstreamBatchMemOpParams describe_memop(const Work& work);

}  // namespace softgpu
