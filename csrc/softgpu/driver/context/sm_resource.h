// What a CUdevResource holds besides its public fields: which SMs of which device, and where the
// resource came from. It is stored inside the structure, in the bytes reserved for the driver.
#pragma once

#include <cuda.h>

#include <bitset>
#include <cstdint>

#include "protocol.h"

namespace softgpu {

using SmSet = std::bitset<tandem::softgpu::kMaxSms>;

enum class ResourceOrigin : uint32_t { kQueried, kGroup, kRemainder };

struct SmResource {
  int device = -1;
  SmSet sms;
  ResourceOrigin origin = ResourceOrigin::kQueried;
  uint64_t split = 0;      // number of the split that made it; 0: none
  unsigned alignment = 0;  // number of SMs that are co-scheduled
};

// How the SMs of an architecture may be divided.
struct SmGranularity {
  unsigned least, multiple;
  unsigned most_coscheduled;
};
SmGranularity sm_granularity(unsigned compute_major);

void write_sm_resource(const SmResource& resource, unsigned least, CUdevResource* out);
// Reads `given`. Refuses a resource that this driver did not make, or that was changed.
CUresult read_sm_resource(const CUdevResource& given, SmResource* out);

}  // namespace softgpu
