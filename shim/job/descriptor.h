// A descriptor of ours in somebody else's process. A program may close everything it did not open
// (daemons do) and get our number back for a file of its own; so each use looks first whether the
// number still means what we opened. Sockets and pipes have an inode of their own each; eventfds
// and the like share one, and cannot be told apart.
#pragma once

#include <sys/types.h>

#include <atomic>

namespace tandem::shim {

class Descriptor {
 public:
  // Takes over a socket or an end of a pipe; closes what it had. -1 is none.
  void adopt(int fd);
  // The number, or -1 when it is not ours (any more). One system call.
  [[nodiscard]] int number() const;
  // Closes it if it is still ours.
  void drop();

 private:
  // Relaxed: one thread changes them; who reads half of a change finds a number that is not ours.
  std::atomic<int> fd_{-1};
  std::atomic<dev_t> device_{0};
  std::atomic<ino_t> inode_{0};
};

}  // namespace tandem::shim
