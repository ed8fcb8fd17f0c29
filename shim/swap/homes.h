// Where moved pages lie on the host: in memory that the daemon has made for this process, pinned once, or
// in a file that the daemon has copied such memory to.
#pragma once

#include <cstdint>

namespace tandem::shim::swap {

// Pools count from 1 on each connection to the daemon. Helper, or who makes the connection.
void begin_counting_pools();

// Takes the descriptor. A pool that has none (-1), is not sealed, or shorter than it says, is counted, since
// the daemon has, and dropped. Helper.
void add_pool(int fd, uint64_t bytes);

// Pins what has come since, in the current context. Memory that cannot be pinned is only slower. Mover.
void pin_pools();
// So much at once: while a driver pins, at a second or less for a GiB, it keeps other processes out of some of
// its calls, and Linux 6.11 to 6.13 pin no more than 2 GiB at once. Pools begin at multiples of it.
inline constexpr uint64_t kPinBytes = 64 << 20;
// How much from `at` on, of `bytes`, was pinned at once: no copy may lie across two.
inline uint64_t pinned_at_once(uint64_t at, uint64_t bytes) {
  const uint64_t left = kPinBytes - at % kPinBytes;
  return bytes < left ? bytes : left;
}

// The file has what is in the pool with that number: its memory goes, and what lies there is read from the
// file from now on. In a context of the homes. Takes the descriptor; false: nothing has changed. Mover.
bool move_pool_to_file(uint64_t number, int fd);

// The pool with that number goes, if nothing lies in it. In a context of the homes. False: nothing has
// changed. Mover.
bool give_pool_back(uint64_t number);

// `bytes`, in steps of shm::kSwapUnit and in as many runs as it takes; 0 = so much is not free. Inside a
// Use, or the mover.
uint32_t take_home(uint64_t bytes);
void give_home_back(uint32_t home);

// A part of a home.
struct Part {
  uint64_t at;  // in memory, unless it is in a file
  uint64_t bytes;
  bool is_in_file;
  int fd;           // of that file; -1 = the program has closed it
  uint64_t offset;  // in it
};
// The first part of a home, and what is left of it after that; 0 = nothing.
uint32_t look_at_home(uint32_t home, Part* out);
[[nodiscard]] bool is_any_in_file(uint32_t home);
[[nodiscard]] uint64_t bytes_in_files();  // of all homes

void forget_homes();  // a forked child has none

}  // namespace tandem::shim::swap
