// Faults injected on purpose: TANDEM_SOFTGPU_FAULTS="oom@3,launch:vadd@1,hang:vadd@10".
//   oom@N          the Nth memory reservation of the run (contexts not counted) is refused
//   launch:NAME@N  the Nth kernel of that name fails with CUDA_ERROR_LAUNCH_FAILED
//   hang:NAME@N    the Nth kernel of that name never ends
//   lost:NAME@N    the Nth kernel of that name takes its whole device down, every client's contexts
//   slow:FACTOR@N  the Nth copy from or to the host lasts FACTOR times as long
// N counts from 1 over all clients of the device process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::softgpu {

enum class FaultKind : uint8_t {
  kNone, kOutOfMemory, kLaunchFailed, kHang, kDeviceLost, kSlowCopy,
};

class Faults {
 public:
  // Adds the faults of a comma-separated list; the error, empty when there is none.
  [[nodiscard]] std::string parse(std::string_view list);

  // Count one reservation, kernel of that name, or copy; what shall become of it.
  bool refuse_reservation();
  FaultKind next_kernel(std::string_view name);
  uint64_t next_copy_factor();

 private:
  struct Planned {
    FaultKind fault;
    std::string name;  // of the kernel
    uint64_t factor;   // of the copy's time
    uint64_t countdown;
  };
  bool add(std::string_view spec);

  std::vector<Planned> planned_;
};

}  // namespace tandem::softgpu
