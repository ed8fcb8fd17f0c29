// Sets of SMs as the shim makes them: all SMs split once into groups, and green contexts over
// groups.
#pragma once

#include "talk.h"

inline CUdevResource all_sms() {
  CUdevResource all = {};
  check(DRIVER(cuDeviceGetDevResource, "cuDeviceGetDevResource")(0, &all, CU_DEV_RESOURCE_TYPE_SM),
        "cuDeviceGetDevResource");
  return all;
}

struct Split {
  CUresult result;
  std::vector<CUdevResource> groups;
  unsigned rest_sms = 0;
};

// Splits all SMs into groups of at least `least` SMs: as many as possible, or `most`.
inline Split split_sms(unsigned least, unsigned flags = 0, unsigned most = UINT32_MAX) {
  static auto* const split = DRIVER(cuDevSmResourceSplitByCount, "cuDevSmResourceSplitByCount");
  const CUdevResource all = all_sms();
  CUdevResource rest = {};
  Split found;
  unsigned count = 0;
  found.result = split(nullptr, &count, &all, nullptr, flags, least);
  if (found.result != CUDA_SUCCESS) return found;
  count = std::min(count, most);
  found.groups.resize(count);
  found.result = split(found.groups.data(), &count, &all, &rest, flags, least);
  found.groups.resize(found.result == CUDA_SUCCESS ? count : 0);
  if (rest.type == CU_DEV_RESOURCE_TYPE_SM) found.rest_sms = rest.sm.smCount;
  return found;
}

// A green context over adjacent groups, with a stream. `result` is that of the first call that
// failed.
struct Green {
  CUgreenCtx green = nullptr;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUresult result;
  double create_us = 0, stream_us = 0;

  Green(CUdevResource* groups, unsigned count) {
    CUdevResourceDesc description = nullptr;
    result =
        DRIVER(cuDevResourceGenerateDesc, "cuDevResourceGenerateDesc")(&description, groups, count);
    if (result != CUDA_SUCCESS) return;
    const auto create = DRIVER(cuGreenCtxCreate, "cuGreenCtxCreate");
    const auto make_stream = DRIVER(cuGreenCtxStreamCreate, "cuGreenCtxStreamCreate");
    uint64_t start_ns = now_ns();
    result = create(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM);
    create_us = (double)(now_ns() - start_ns) / 1e3;
    if (result != CUDA_SUCCESS) return;
    result = DRIVER(cuCtxFromGreenCtx, "cuCtxFromGreenCtx")(&context, green);
    if (result != CUDA_SUCCESS) return;
    start_ns = now_ns();
    result = make_stream(&stream, green, CU_STREAM_NON_BLOCKING, 0);
    stream_us = (double)(now_ns() - start_ns) / 1e3;
  }
  // Destroys the stream, then the context; returns how long that takes, in us.
  double destroy() {
    const uint64_t start_ns = now_ns();
    if (stream != nullptr) check(DRIVER(cuStreamDestroy_v2, "cuStreamDestroy")(stream), "stream");
    if (green != nullptr) check(DRIVER(cuGreenCtxDestroy, "cuGreenCtxDestroy")(green), "green");
    return (double)(now_ns() - start_ns) / 1e3;
  }
};

// Kernels that belong to no context: a launch uses the context of its stream. sm_switch examines
// whether functions of the primary context work as well.
class Kernels {
 public:
  explicit Kernels(const char* path) {
    check(DRIVER(cuLibraryLoadFromFile, "cuLibraryLoadFromFile")(&library_, path, nullptr, nullptr,
                                                                 0, nullptr, nullptr, 0),
          "cuLibraryLoadFromFile");
  }
  CUfunction get(const char* name) const {
    CUkernel kernel;
    check(DRIVER(cuLibraryGetKernel, "cuLibraryGetKernel")(&kernel, library_, name), name);
    return (CUfunction)kernel;
  }

 private:
  CUlibrary library_;
};

inline CUcontext current() {
  CUcontext context = nullptr;
  check(DRIVER(cuCtxGetCurrent, "cuCtxGetCurrent")(&context), "cuCtxGetCurrent");
  return context;
}

inline void make_current(CUcontext context) {
  need(DRIVER(cuCtxSetCurrent, "cuCtxSetCurrent")(context), "cuCtxSetCurrent");
}

// Finds out on which SMs the blocks of a kernel ran, by `where` in sm_sets.cu.
class Where {
 public:
  static constexpr unsigned kBlocks = 4096;

  explicit Where(const Kernels& kernels) : function_(kernels.get("where")) {
    check(DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&seen_, kBlocks * sizeof(unsigned)), "cuMemAlloc");
  }
  // Launches without waiting; by another handle of the same kernel if one is given.
  CUresult launch(CUstream stream, CUfunction other = nullptr) {
    void* parameters[] = {&seen_, &stay_ns_};
    return DRIVER(cuLaunchKernel, "cuLaunchKernel")(other != nullptr ? other : function_, kBlocks,
                                                    1, 1, 32, 1, 1, 0, stream, parameters, nullptr);
  }
  // Adds a node to `graph` that does what a launch does; its handle is passed as `func` or `kern`.
  CUresult add(CUgraph graph, CUfunction func, CUkernel kern, CUcontext context) {
    void* parameters[] = {&seen_, &stay_ns_};
    const CUDA_KERNEL_NODE_PARAMS_v2 wanted = {func, kBlocks, 1,          1,       32,   1,
                                               1,    0,       parameters, nullptr, kern, context};
    CUgraphNode node;
    return DRIVER(cuGraphAddKernelNode_v2, "cuGraphAddKernelNode")(&node, graph, nullptr, 0,
                                                                   &wanted);
  }
  void forget() {
    need(DRIVER(cuMemsetD8_v2, "cuMemsetD8")(seen_, 0xff, kBlocks * sizeof(unsigned)),
         "cuMemsetD8");
    need(DRIVER(cuCtxSynchronize, "cuCtxSynchronize")(), "cuCtxSynchronize");
  }
  // Waits for the stream; returns the SMs seen, sorted, each once.
  std::vector<uint64_t> seen(CUstream stream) {
    std::vector<unsigned> all(kBlocks);
    need(DRIVER(cuStreamSynchronize, "cuStreamSynchronize")(stream), "cuStreamSynchronize");
    need(DRIVER(cuMemcpyDtoH_v2, "cuMemcpyDtoH")(all.data(), seen_, kBlocks * sizeof all[0]),
         "copy");
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    if (!all.empty() && all.back() == UINT32_MAX) all.pop_back();
    return std::vector<uint64_t>(all.begin(), all.end());
  }
  std::vector<uint64_t> run(CUstream stream, CUfunction other = nullptr) {
    forget();
    need(launch(stream, other), "cuLaunchKernel");
    return seen(stream);
  }

 private:
  CUfunction function_;
  unsigned long long stay_ns_ = 2000;  // how long each block stays
  CUdeviceptr seen_ = 0;
};
