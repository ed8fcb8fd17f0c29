// A descriptor of the shim in somebody else's process. A program may close everything that it did
// not open (daemons do) and then get the same number for a file of its own; so each use first
// checks that the number still means what the shim opened. Sockets and pipes each have an inode of
// their own; eventfds and the like share one, and cannot be told apart.
#pragma once

#include <sys/types.h>

#include <atomic>

namespace tandem::shim {

class Descriptor {
 public:
  // Takes over a socket or one end of a pipe; closes the previous one. -1 means none.
  void adopt(int fd);
  // The number, or -1 when it is not (or no longer) the shim's. One system call.
  [[nodiscard]] int number() const;
  // Closes it if it is still the shim's.
  void drop();

 private:
  // Relaxed: one thread changes them; a reader that sees half of a change finds a number that is
  // not the shim's.
  std::atomic<int> fd_{-1};
  std::atomic<dev_t> device_{0};
  std::atomic<ino_t> inode_{0};
};

}  // namespace tandem::shim
