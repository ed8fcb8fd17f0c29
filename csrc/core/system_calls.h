// System calls for which glibc has got a function of its own after 2.17, the oldest that a job may have: the
// preloaded library must not ask for a version that a job's glibc lacks, or the process ends before it begins.
#pragma once

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace tandem {

// glibc 2.33; before, an inline function over another one. `struct stat` is the kernel's own on 64 bits.
inline bool file_status(int fd, struct stat* about) { return syscall(SYS_fstat, fd, about) == 0; }

// glibc 2.25. False: not so many are there at once.
inline bool random_bytes(void* out, size_t bytes) {
  constexpr unsigned kDoNotWait = 1;  // GRND_NONBLOCK, of a header as new as the function
  return syscall(SYS_getrandom, out, bytes, kDoNotWait) == static_cast<long>(bytes);
}

}  // namespace tandem
