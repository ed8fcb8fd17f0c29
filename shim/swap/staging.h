// Memory through which homes in files pass on their way to the device: one place for each copy in
// flight, made when the first is needed. Mover.
#pragma once

#include <cstddef>
#include <cstdint>

#include "homes.h"

namespace tandem::shim::swap {

enum class Read : uint32_t {
  kDone,
  kLater,  // the process or the machine is short of something just now
  kLost,   // the disk does not deliver it, or the program has closed the file
};

class Staging {
 public:
  static constexpr size_t kPlaces = 4;
  static constexpr uint64_t kPlaceBytes = 32 << 20;  // of the largest piece

  Staging() = default;
  ~Staging() { drop(); }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // The address for the byte at `offset` of a piece, in the place of that number. In the context of
  // the copies; null: there is no memory for it.
  char* at(size_t place, uint64_t offset);
  static Read read(const Part& part, char* to);
  // In the context in which it was made, when nothing is in flight.
  void drop();

 private:
  char* memory_ = nullptr;
  bool pinned_ = false;
};

}  // namespace tandem::shim::swap
