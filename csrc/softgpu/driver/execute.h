// What operations do when the device sends START. Bodies run one at a time, without the runtime's
// mutex; see Runtime::take_executable for the thread that runs them.
#pragma once

#include "objects.h"

namespace softgpu {

// The SMs that the kernel executed by this thread may use: those of its stream, or the share of its
// context. If `index` is null they are numbered from 0.
struct ExecutingSms {
  const uint32_t* index = nullptr;
  uint32_t count = 0;
  uint32_t begun_on = 0;  // how many of these it began on; 0: not known
};
extern thread_local ExecutingSms t_sms;
extern thread_local uint64_t t_start_ns;  // device time at which it started

CUresult run_kernel(const Work& work);
// Copies `depth` slices of `height` rows of `bytes` bytes; without a source, from the payload.
CUresult run_copy(const Work& work);
// Sets `height` rows of `bytes` bytes, in elements of width_or_flags bytes.
CUresult run_memset(const Work& work);
CUresult run_host_function(const Work& work);
CUresult run_callback(const Work& work);
CUresult run_write_value(const Work& work);  // `bytes` 4 or 8
CUresult run_wait_value(const Work& work);   // NOT_READY: the condition does not hold yet

}  // namespace softgpu
