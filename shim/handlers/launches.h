// Kernels.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "always_inline.h"
#include "driver.h"
#include "observe.h"
#include "slots.h"
#include "streams.h"
#include "submit.h"
#include "submit_path.h"

namespace tandem::shim::handlers {

ALWAYS_INLINE uint32_t saturated(uint64_t a, uint64_t b, uint64_t c) {
  const uint64_t product = a * b * c;
  return product > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(product);
}

template <class Call>
ALWAYS_INLINE Submission describe_launch(CUfunction function, CUstream stream, uint32_t blocks) {
  Submission submission;
  submission.stream = normalise(stream, Call::kPerThread);
  submission.object = reinterpret_cast<uint64_t>(function);
  submission.blocks = blocks;
  submission.measured = true;
  return submission;
}

inline LaunchArguments arguments_of(CUfunction function, void** parameters,
                                    void** extra = nullptr) {
  return {function, parameters, extra};
}

// A grid whose blocks wait for each other was sized for all SMs that the device reports. Where it
// does not fit into the stream's set, the stream stays on the whole device from then on.
template <class Call, class... A>
__attribute__((cold, noinline)) CUresult too_large(CUstream stream, A... arguments) {
  if (!partition::is_in_set(stream)) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  partition::keep_home(stream, shm::StayReason::kElsewhere);
  return Call::real(arguments...);
}
template <class Call, class... A>
ALWAYS_INLINE CUresult on_enough_sms(CUstream stream, A... arguments) {
  const CUresult result = Call::real(arguments...);
  if (__builtin_expect(result != CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, 1)) return result;
  return too_large<Call>(stream, arguments...);
}

template <class Call, class... Rest>
ALWAYS_INLINE CUresult launch_kernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                     unsigned grid_z, unsigned block_x, unsigned block_y,
                                     unsigned block_z, unsigned shared_bytes, CUstream stream,
                                     Rest... rest) {
  const auto real = [&]() __attribute__((always_inline)) {
    return on_enough_sms<Call>(stream, function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                               shared_bytes, stream, rest...);
  };
  Channel* channel = managed_channel();
  if (!channel) return path::submit_unmanaged(real);
  Submission submission =
      describe_launch<Call>(function, stream, saturated(grid_x, grid_y, grid_z));
  submission.threads = saturated(block_x, block_y, block_z);
  return path::submit_launch(*channel, submission, arguments_of(function, rest...), real);
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

// A launch may itself record events: at its programmatic trigger, or when all its blocks have
// begun.
inline void record_events(Channel& channel, uint64_t stream, const CUlaunchConfig& config) {
  for (unsigned i = 0; i < config.numAttrs && config.attrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    CUevent event = nullptr;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
      event = attribute.value.programmaticEvent.event;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
      event = attribute.value.launchCompletionEvent.event;
    if (!event) continue;
    record_order(channel, shm::RecordKind::kEventRecord, stream, reinterpret_cast<uint64_t>(event));
  }
}

template <class Call>
ALWAYS_INLINE CUresult launch_kernel_ex(const CUlaunchConfig* config, CUfunction function,
                                        void** parameters, void** extra) {
  if (!config) return Call::real(config, function, parameters, extra);
  const auto real = [&]() __attribute__((always_inline)) {
    return on_enough_sms<Call>(config->hStream, config, function, parameters, extra);
  };
  Channel* channel = managed_channel();
  if (!channel) return path::submit_unmanaged(real);
  Submission submission = describe_launch<Call>(
      function, config->hStream, saturated(config->gridDimX, config->gridDimY, config->gridDimZ));
  submission.threads = saturated(config->blockDimX, config->blockDimY, config->blockDimZ);
  submission.programmatic = is_programmatic(*config);
  if (submission.programmatic) submission.record_flags = shm::kRecordProgrammatic;
  const CUresult result =
      path::submit_launch(*channel, submission, {function, parameters, extra}, real);
  if (config->numAttrs && result == CUDA_SUCCESS) {
    channel = g_channel.load(std::memory_order_acquire);  // it may have been lost meanwhile
    if (channel) record_events(*channel, submission.stream, *config);
  }
  return result;
}

// One kernel on each of several devices, in streams that are never default ones: admitted once,
// counted in each stream.
template <class Call>
CUresult launch_on_devices(CUDA_LAUNCH_PARAMS* launches, unsigned count, unsigned flags) {
  const auto real = [&] { return Call::real(launches, count, flags); };
  if (!launches || !count) return real();
  if (partition::is_on()) {
    for (unsigned i = 0; i < count; ++i)
      partition::keep_home(launches[i].hStream, shm::StayReason::kElsewhere);
  }
  const auto describe = [&](unsigned i) {
    const CUDA_LAUNCH_PARAMS& launch = launches[i];
    Submission submission =
        describe_launch<Call>(launch.function, launch.hStream,
                              saturated(launch.gridDimX, launch.gridDimY, launch.gridDimZ));
    submission.threads = saturated(launch.blockDimX, launch.blockDimY, launch.blockDimZ);
    return submission;
  };
  return submit(describe(0), [&] {
    const CUresult result = real();
    Channel* channel = g_channel.load(std::memory_order_acquire);
    if (result != CUDA_SUCCESS || !channel) return result;
    for (unsigned i = 1; i < count; ++i) count_submission(*channel, describe(i));
    return result;
  });
}

// CUDA 3: the block shape is a property of the function.
template <class Call>
CUresult launch_one(CUfunction function) {
  return submit(describe_launch<Call>(function, nullptr, 1), [&] { return Call::real(function); });
}
template <class Call>
CUresult launch_grid(CUfunction function, int width, int height) {
  const uint32_t blocks = saturated(static_cast<unsigned>(width), static_cast<unsigned>(height), 1);
  return submit(describe_launch<Call>(function, nullptr, blocks),
                [&] { return Call::real(function, width, height); });
}
template <class Call>
CUresult launch_grid(CUfunction function, int width, int height, CUstream stream) {
  const uint32_t blocks = saturated(static_cast<unsigned>(width), static_cast<unsigned>(height), 1);
  return submit(describe_launch<Call>(function, stream, blocks),
                [&] { return Call::real(function, width, height, stream); });
}

}  // namespace tandem::shim::handlers
