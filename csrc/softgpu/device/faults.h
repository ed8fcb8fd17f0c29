// Faults injected on purpose: TANDEM_SOFTGPU_FAULTS="oom@3,launch:vadd@1,hang:vadd%0.01,seed=7".
// The table in faults.cpp lists them. Each fault happens either
//   @N  to the Nth operation of its kind, counted from 1 over all clients of the device process, or
//   %P  to each with probability P; `seed` (default 0) determines which ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::softgpu {

enum class FaultKind : uint8_t {
  kNone,
  kOutOfMemory,
  kLaunchFailed,
  kHang,
  kDeviceLost,
  kSlowCopy,
  kEccCorrected,
  kEccUncorrectable,
  kCopyFailed,
  kMapRefused,
};

class Faults {
 public:
  // Adds the faults of a comma-separated list. Returns the error, empty if there is none.
  [[nodiscard]] std::string parse(std::string_view list);

  struct Copy {
    uint64_t factor = 1;  // its duration is multiplied by this
    bool fails = false;
  };

  // Each of these counts one reservation, one piece of physical memory, one kernel of that name, or
  // one copy, and returns what happens to it.
  bool refuse_reservation() { return next_of(FaultKind::kOutOfMemory); }
  bool refuse_map() { return next_of(FaultKind::kMapRefused); }
  FaultKind next_kernel(std::string_view name);
  Copy next_copy();

 private:
  struct Planned {
    FaultKind fault = FaultKind::kNone;
    std::string name;     // of the kernel
    uint64_t factor = 1;  // of the copy's duration
    uint64_t nth = 0;     // 0: by probability
    double probability = 0;
    uint64_t seen = 0;  // how many of its kind so far
  };
  std::string add(std::string_view spec);
  std::string read_moment(std::string_view spec, char mark, std::string_view text,
                          Planned* planned) const;
  bool happens(Planned* planned) const;
  bool next_of(FaultKind fault);

  std::vector<Planned> planned_;
  uint64_t seed_ = 0;
};

}  // namespace tandem::softgpu
