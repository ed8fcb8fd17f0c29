// The green contexts of this process, each over some of the groups into which every process splits
// the device's SMs alike. From "Green Contexts" in the CUDA driver API: groups made by one split
// can be combined again, the same split of the same device gives the same groups, and streams of a
// green context share the memory and modules of the primary one.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tandem::shim::partition {

inline constexpr int kSets = 16;   // the most green contexts that a process has
inline constexpr int kWhole = -1;  // no green context: the whole device
inline constexpr int kNoSet = -2;

// All of these require that the caller holds the lock of the table of streams and has the primary
// context current.

// The number of the set that a word of the command page stands for; the set is made if there is
// room. kNoSet if the driver refuses, or lacks functions that this needs. The caller makes room by
// `drop_set`.
int set_number(uint32_t word, CUdevice device);
// Whether the set exists, or can be made without dropping another one first.
[[nodiscard]] bool has_room(uint32_t word);
[[nodiscard]] bool has_set(int number);

// A stream in the set, or null.
CUstream make_stream(int number, int priority);

// The set's streams are destroyed, or will be together with the context.
void drop_set(int number);
void forget_sets();  // the contexts are gone

}  // namespace tandem::shim::partition
