// Forward, backward and update parts of one finished training iteration, from what it submitted.
//
//   update    the tail: a few functions, launched many times, that occur nowhere else, and no wait
//             of the host among them; an optimizer's loop over its parameters
//   backward  where memory tells: activations are freed in the opposite order of their allocation,
//             so their lifetimes are nested and all contain the turn (the maximum of the curve of
//             live bytes: Wavelet, MLSys 2021, and Zico, ATC 2021, overlap jobs by it)
//             where an allocator keeps its memory: the turn is where the set of launched functions
//             changes most, by mutual information of function and side; only before an update
//   passes    of gradient accumulation are all split alike
//
// Where this does not hold, as in programs that only infer, the result is empty. Pure functions for
// one thread; O(n log n) in the items, with heap allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tandem::dag {

enum class Phase : uint8_t { kOutside = 0, kForward = 1, kBackward = 2, kUpdate = 3 };

struct Item {
  enum class Kind : uint8_t {
    kLaunch,
    kWait,
    kToDevice,
    kAlloc,
    kFree,
    kPhaseBegin,
    kPhaseEnd,
    kStep
  };
  uint64_t ticks;
  uint64_t object;  // function, address, or hash of the phase's name
  uint64_t size;    // launches: predicted GPU time in ns, 0 = not known; allocations: bytes
  Kind kind;
  bool begins;  // an iteration begins here; PhaseFinder's own
  uint16_t thread;
};

// Returns the phase of each launch in items, in order. Empty: not known.
std::vector<Phase> split(const std::vector<Item>& items);

// Like split, by the program's own phase marks; empty if it set none.
std::vector<Phase> split_by_marks(const std::vector<Item>& items);

// Maps the FNV-1a hash (64 bits) of a phase's name to the phase; kOutside for names other than
// "forward", "backward" and "update".
Phase phase_of(uint64_t name_hash);

}  // namespace tandem::dag
