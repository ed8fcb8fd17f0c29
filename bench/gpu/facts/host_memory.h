// Host memory for copies: the driver's own, or a sealed memfd like the daemon's pool.
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "facts.h"

// Touches the memory with many threads: a single one takes half a minute for 40 GiB.
inline void populate(char* at, size_t bytes) {
  const size_t count = std::max(1u, std::min(16u, std::thread::hardware_concurrency()));
  const size_t part = (bytes / count + 4095) / 4096 * 4096;
  std::vector<std::thread> threads;
  for (size_t begin = 0; begin < bytes; begin += part)
    threads.emplace_back([=] {
      for (size_t i = begin; i < std::min(bytes, begin + part); i += 4096) at[i] = 1;
    });
  for (std::thread& thread : threads) thread.join();
}

// Returns a sealed memfd, mapped and filled; null on failure, with the reason in `error`. It is
// never freed, since the process ends soon. `flags` are for memfd_create, to use reserved huge
// pages; `advise` asks the kernel for transparent ones.
inline char* sealed_memory(size_t bytes, unsigned flags, bool advise, std::string* error) {
  const int fd = memfd_create("tandem-facts", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
  void* at = MAP_FAILED;
  // With fallocate, missing huge pages fail here instead of at the first touch, as a SIGBUS.
  if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 &&
      (flags == 0 || fallocate(fd, 0, 0, (off_t)bytes) == 0) &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
    at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED || (advise && madvise(at, bytes, MADV_HUGEPAGE) != 0)) {
    *error = strerror(errno);
    return nullptr;
  }
  populate((char*)at, bytes);
  return (char*)at;
}

// Returns how many KiB of this process's shared memory are in huge pages; -1: the kernel does not
// say.
inline double huge_kib() {
  FILE* file = fopen("/proc/self/smaps_rollup", "r");
  char line[256];
  double found = -1;
  while (file != nullptr && fgets(line, sizeof line, file) != nullptr) {
    long kib = 0;
    if (sscanf(line, "ShmemPmdMapped: %ld kB", &kib) == 1) found = (double)kib;
  }
  if (file != nullptr) fclose(file);
  return found;
}
