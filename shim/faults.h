// Tells whether a fault of faults.def is planted: never, at no cost, unless built with
// -DTANDEM_FAULTS.
#pragma once

#include <cstdint>

namespace tandem::shim {

enum class Fault : uint8_t {
  kNone,
#define FAULT(name, what) name,
#include "faults.def"
#undef FAULT
};

#ifdef TANDEM_FAULTS
bool planted(Fault fault);
// Puts faulty functions in front of the driver's.
void plant_in_driver();
#else
constexpr bool planted(Fault) { return false; }
constexpr void plant_in_driver() {}
#endif

}  // namespace tandem::shim
