// Copies and memsets: in which direction the bytes go and how long that may take.
#pragma once

#include <cstdint>

namespace tandem::shim {

// The values are those of telemetry records.
enum class Direction : uint64_t {
  kUnknown = 0,
  kToDevice = 1,
  kFromDevice = 2,
  kWithin = 3,   // one device
  kBetween = 4,  // two devices
};

// Copies without host memory go on after a call without a stream has returned.
constexpr bool leaves_host_out(Direction direction) {
  return direction == Direction::kWithin || direction == Direction::kBetween;
}

// A guess, good enough to decide when to look for the end; what is charged is measured.
uint64_t transfer_estimate_ns(uint64_t bytes, Direction direction);

// For copies whose call does not name the direction: asks the driver what the two addresses are.
Direction direction_between(uint64_t destination, uint64_t source);

}  // namespace tandem::shim
