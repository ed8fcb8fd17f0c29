// What operations do when the device says START. Bodies run one at a time, without the runtime's
// mutex; see Runtime::take_executable for the thread.
#pragma once

#include "objects.h"

namespace softgpu {

CUresult run_kernel(Op& op);
CUresult run_copy(Op& op);    // `height` rows of `bytes`
CUresult run_memset(Op& op);  // `height` rows of `bytes`, elements of width_or_flags bytes
CUresult run_host_function(Op& op);
CUresult run_callback(Op& op);
CUresult run_write_value(Op& op);  // `bytes` 4 or 8
CUresult run_wait_value(Op& op);

}  // namespace softgpu
