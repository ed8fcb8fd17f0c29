// What a job with a memory limit sees of a device through NVML: its own share, and itself.
#pragma once

#include <cstdint>

#include "nvml/nvml_api.h"

namespace tandem::shim::nvml {

// The limit, and how much of it is used. False: no limit, so the device is shown as it is. An
// attached process sees what cuMemGetInfo tells it; one that only looks sees what NVML reports for
// the job's processes.
struct Share {
  uint64_t total_bytes;
  uint64_t used_bytes;
};
bool share_of(Device device, uint64_t device_bytes, Share* share);

// Whether the job gets answers of its own, because it has a limit.
bool has_own_view();

// The process is this one, or was started by the same `tandem run`.
bool is_of_this_job(unsigned pid);

// The job's share of the SMs' time in percent; false when NVML does not report it.
bool busy_percent(Device device, unsigned* percent);

}  // namespace tandem::shim::nvml
