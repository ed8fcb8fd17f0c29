// The health of a device: its ECC errors so far, and whether it is still there.
#pragma once

#include <cstdint>

namespace tandem::softgpu {

// Event types are numbered as in NVML, XIDs as in the driver.
enum EventType : uint64_t { kEventEccCorrected = 1, kEventEccUncorrectable = 2, kEventXid = 8 };
enum Xid : uint64_t {
  kXidGraphicsException = 13,  // a kernel failed
  kXidMmuFault = 31,           // a kernel accessed unmapped memory
  kXidEccUncorrectable = 48,
  kXidOffTheBus = 79,
};

struct Health {
  uint64_t ecc_corrected = 0, ecc_uncorrectable = 0;
  bool lost = false;
};

}  // namespace tandem::softgpu
