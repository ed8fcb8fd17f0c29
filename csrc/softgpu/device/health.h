// What a device has been through: ECC errors so far, and whether it is still there.
#pragma once

#include <cstdint>

namespace tandem::softgpu {

// Numbers of NVML (event types) and of the driver (XIDs).
enum EventType : uint64_t { kEventEccCorrected = 1, kEventEccUncorrectable = 2, kEventXid = 8 };
enum Xid : uint64_t {
  kXidGraphicsException = 13,  // a kernel failed
  kXidMmuFault = 31,           // a kernel touched what is not mapped
  kXidEccUncorrectable = 48,
  kXidOffTheBus = 79,
};

struct Health {
  uint64_t ecc_corrected = 0, ecc_uncorrectable = 0;
  bool lost = false;
};

}  // namespace tandem::softgpu
