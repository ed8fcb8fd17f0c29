// What operations do when the device says START. Bodies run one at a time, without the runtime's
// mutex; see Runtime::take_executable for the thread.
#pragma once

#include "objects.h"

namespace softgpu {

// The SMs that the kernel which this thread executes may use: those of its stream, or the part that its
// context has; no indices: they are numbered from 0.
struct ExecutingSms {
  const uint32_t* index = nullptr;
  uint32_t count = 0;
  uint32_t begun_on = 0;  // how many of these it began on; 0: not known
};
extern thread_local ExecutingSms t_sms;
extern thread_local uint64_t t_start_ns;  // when the device started it

CUresult run_kernel(const Work& work);
// `depth` slices of `height` rows of `bytes`; no source: from the payload.
CUresult run_copy(const Work& work);
CUresult run_memset(const Work& work);  // `height` rows of `bytes`, elements of width_or_flags bytes
CUresult run_host_function(const Work& work);
CUresult run_callback(const Work& work);
CUresult run_write_value(const Work& work);  // `bytes` 4 or 8
CUresult run_wait_value(const Work& work);   // NOT_READY: the condition does not hold yet

}  // namespace softgpu
