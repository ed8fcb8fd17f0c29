// Kernels and graphs.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "driver.h"
#include "slots.h"
#include "submit.h"

namespace tandem::shim::handlers {

inline uint32_t saturated(uint64_t a, uint64_t b, uint64_t c) {
  const uint64_t product = a * b * c;
  return product > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(product);
}

template <class Call, class... Rest>
CUresult launch_kernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                       CUstream stream, Rest... rest) {
  Submission submission;
  submission.stream = normalise(stream, Call::kPerThread);
  submission.object = reinterpret_cast<uint64_t>(function);
  submission.blocks = saturated(grid_x, grid_y, grid_z);
  submission.threads = saturated(block_x, block_y, block_z);
  submission.measured = true;
  return submit(submission, [&] {
    return Call::real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                      stream, rest...);
  });
}

inline bool is_programmatic(const CUlaunchConfig& config) {
  for (unsigned i = 0; i < config.numAttrs && config.attrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        attribute.value.programmaticStreamSerializationAllowed) {
      return true;
    }
  }
  return false;
}

template <class Call>
CUresult launch_kernel_ex(const CUlaunchConfig* config, CUfunction function, void** parameters,
                          void** extra) {
  if (!config) return Call::real(config, function, parameters, extra);
  Submission submission;
  submission.stream = normalise(config->hStream, Call::kPerThread);
  submission.object = reinterpret_cast<uint64_t>(function);
  submission.blocks = saturated(config->gridDimX, config->gridDimY, config->gridDimZ);
  submission.threads = saturated(config->blockDimX, config->blockDimY, config->blockDimZ);
  submission.measured = true;
  submission.programmatic = is_programmatic(*config);
  return submit(submission, [&] { return Call::real(config, function, parameters, extra); });
}

template <class Call>
CUresult launch_graph(CUgraphExec graph, CUstream stream) {
  Submission submission;
  submission.kind = shm::RecordKind::kGraph;
  submission.stream = normalise(stream, Call::kPerThread);
  submission.object = reinterpret_cast<uint64_t>(graph);
  submission.measured = true;
  submission.alone = true;
  return submit(submission, [&] { return Call::real(graph, stream); });
}

}  // namespace tandem::shim::handlers
