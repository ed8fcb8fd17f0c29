// Faults injected on purpose: TANDEM_SOFTGPU_FAULTS="oom@3,launch:vadd@1,hang:vadd@10".
//   oom@N          the Nth memory reservation of the run (contexts not counted) is refused
//   launch:NAME@N  the Nth kernel of that name fails with CUDA_ERROR_LAUNCH_FAILED
//   hang:NAME@N    the Nth kernel of that name never ends
// N counts from 1 over all clients of the device process.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::softgpu {

enum class KernelFault : uint8_t { kNone, kLaunchFailed, kHang };

class Faults {
 public:
  // Adds the faults of a comma-separated list; the error, empty when there is none.
  [[nodiscard]] std::string parse(std::string_view list);

  // Count one reservation, or one kernel of that name; what shall become of it.
  bool refuse_reservation();
  KernelFault next_kernel(std::string_view name);

 private:
  struct Planned {
    KernelFault fault;  // kNone: out of memory
    std::string name;
    uint64_t countdown;
  };
  bool add(std::string_view spec);

  std::vector<Planned> planned_;
};

}  // namespace tandem::softgpu
