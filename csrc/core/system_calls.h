// System calls whose wrappers glibc gained after 2.17, the oldest version that a job may use. If
// the preloaded library required a symbol version that a job's glibc lacks, the process would die
// at startup.
#pragma once

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace tandem {

// glibc 2.33; before that an inline wrapper of another function. On 64 bits, `struct stat` is the
// kernel's own.
inline bool file_status(int fd, struct stat* about) { return syscall(SYS_fstat, fd, about) == 0; }

// glibc 2.25. False: fewer bytes are available right now.
inline bool random_bytes(void* out, size_t bytes) {
  constexpr unsigned kDoNotWait = 1;  // GRND_NONBLOCK, in a header as new as the function
  return syscall(SYS_getrandom, out, bytes, kDoNotWait) == static_cast<long>(bytes);
}

}  // namespace tandem
