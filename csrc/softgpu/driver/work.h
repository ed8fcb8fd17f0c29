// Converts what a program describes to Work, for driver calls and for graph nodes.
#pragma once

#include <cuda.h>

#include "objects.h"

namespace softgpu {

class Runtime;

struct LaunchPlan;

CUresult kernel_work(const Runtime& rt, Function* function, const CUlaunchConfig& config,
                     void** params, void** extra, LaunchPlan* plan, Work* work);
// Which kind of memory an end of a copy is in. It decides when a call may return.
enum class Side { kPageable, kPinned, kDevice };
struct CopySides {
  Side source, destination;
};
// Only the copy itself; what it needs in a stream (staging, waiting) is up to the caller.
CUresult copy_work(Runtime& rt, const CUDA_MEMCPY3D& copy, Work* work, CopySides* sides = nullptr);
OpKind copy_kind(const CopySides& sides);
CUresult memset_work(Runtime& rt, const CUDA_MEMSET_NODE_PARAMS& set, Work* work);
// A barrier becomes a marker, because everything is ordered here.
CUresult memop_work(Runtime& rt, const CUstreamBatchMemOpParams& memop, Work* work);
Work host_work(CUhostFn function, void* user);

// The reverse conversions, for captured work.
CUDA_MEMCPY3D describe_copy(const Work& work);
CUDA_MEMSET_NODE_PARAMS describe_memset(const Work& work);
CUstreamBatchMemOpParams describe_memop(const Work& work);

}  // namespace softgpu
