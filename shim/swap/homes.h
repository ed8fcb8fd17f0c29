// Where moved pages lie on the host: in memory that the daemon has made for this process, pinned
// once, or in a file to which the daemon has copied such memory.
#pragma once

#include <cstdint>

namespace tandem::shim::swap {

// Pools count from 1 on each connection to the daemon. Called by the helper, or by the thread that
// connects.
void begin_counting_pools();

// Takes the descriptor. A pool without one (-1), not sealed, or shorter than claimed is dropped,
// but takes a number, because the daemon has counted it. Helper.
void add_pool(int fd, uint64_t bytes);

// Pins the pools that have arrived since, in the current context. Memory that cannot be pinned is
// only slower. Mover.
void pin_pools();
// How much to pin at once. While a driver pins, at a second or less per GiB, it keeps other
// processes out of some of its calls, and Linux 6.11 to 6.13 pin no more than 2 GiB at once. Pools
// begin at multiples of it.
inline constexpr uint64_t kPinBytes = 64 << 20;
// How much of `bytes` from `at` on was pinned at once: no copy may span two such parts.
inline uint64_t pinned_at_once(uint64_t at, uint64_t bytes) {
  const uint64_t left = kPinBytes - at % kPinBytes;
  return bytes < left ? bytes : left;
}

// The file holds what is in the pool with that number: the pool's memory goes, and what lies there
// is read from the file from now on. In a context of the homes. Takes the descriptor; false:
// nothing has changed. Mover.
bool move_pool_to_file(uint64_t number, int fd);

// Gives the pool with that number back, if nothing lies in it. In a context of the homes. False:
// nothing has changed. Mover.
bool give_pool_back(uint64_t number);

// Reserves `bytes`, in steps of shm::kSwapUnit and in as many runs as it takes; 0 = that much is
// not free. Inside a Use, or the mover.
uint32_t take_home(uint64_t bytes);
void give_home_back(uint32_t home);

// A part of a home.
struct Part {
  uint64_t at;  // an address, unless it is in a file
  uint64_t bytes;
  bool is_in_file;
  int fd;           // of that file; -1 = the program has closed it
  uint64_t offset;  // in the file
};
// The first part of a home. Returns the home of what is left after that; 0 = nothing.
uint32_t look_at_home(uint32_t home, Part* out);
[[nodiscard]] bool is_any_in_file(uint32_t home);
[[nodiscard]] uint64_t bytes_in_files();  // of all homes

void forget_homes();  // a forked child has none

}  // namespace tandem::shim::swap
