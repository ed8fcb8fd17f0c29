// The green contexts of this process, each over some of the groups into which every process splits the
// SMs of the device alike. "Green Contexts" in the CUDA driver API: groups that one split made can be put
// together again, a split of the same device by the same numbers is the same, and streams of a green
// context share the memory and the modules of the primary one.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tandem::shim::partition {

inline constexpr int kSets = 16;      // green contexts a process has at most
inline constexpr int kWhole = -1;     // no green context: the whole device
inline constexpr int kNoSet = -2;

// All of these: the caller holds the lock of the table of streams, and has the primary context current.

// The number of the set that a word of the command page stands for, made if there is room; kNoSet if the
// driver lacks what it takes, or refuses. The caller makes room by `drop_set`.
int set_number(uint32_t word, CUdevice device);
// Whether it is there, or can be made without another one being dropped first.
[[nodiscard]] bool has_room(uint32_t word);
[[nodiscard]] bool has_set(int number);

// A stream in it, or null.
CUstream make_stream(int number, int priority);

// Its streams are destroyed, or are to be with the context.
void drop_set(int number);
void forget_sets();  // the contexts are gone

}  // namespace tandem::shim::partition
