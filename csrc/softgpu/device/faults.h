// Faults injected on purpose: TANDEM_SOFTGPU_FAULTS="oom@3,launch:vadd@1,hang:vadd%0.01,seed=7".
// The table in faults.cpp says which there are. Each happens either
//   @N  to the Nth of its kind, N counting from 1 over all clients of the device process, or
//   %P  to each with probability P; which ones is fixed by `seed` (0 where none is given).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::softgpu {

enum class FaultKind : uint8_t {
  kNone, kOutOfMemory, kLaunchFailed, kHang, kDeviceLost, kSlowCopy, kEccCorrected,
  kEccUncorrectable, kCopyFailed, kMapRefused,
};

class Faults {
 public:
  // Adds the faults of a comma-separated list; the error, empty when there is none.
  [[nodiscard]] std::string parse(std::string_view list);

  struct Copy {
    uint64_t factor = 1;  // of its time
    bool fails = false;
  };

  // Count one reservation, piece of physical memory, kernel of that name, or copy; what shall become
  // of it.
  bool refuse_reservation() { return next_of(FaultKind::kOutOfMemory); }
  bool refuse_map() { return next_of(FaultKind::kMapRefused); }
  FaultKind next_kernel(std::string_view name);
  Copy next_copy();

 private:
  struct Planned {
    FaultKind fault = FaultKind::kNone;
    std::string name;             // of the kernel
    uint64_t factor = 1;          // of the copy's time
    uint64_t nth = 0;             // 0: by probability
    double probability = 0;
    uint64_t seen = 0;            // so far
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
