#include "staging.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "driver.h"

namespace tandem::shim::swap {

char* Staging::at(size_t place, uint64_t offset) {
  if (!memory_) {
    // In whole pages, as reads that bypass the page cache require.
    void* const got = mmap(nullptr, kPlaces * kPlaceBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) return nullptr;
    madvise(got, kPlaces * kPlaceBytes, MADV_DONTFORK);
    memory_ = static_cast<char*>(got);
    pinned_ = g_driver.cuMemHostRegister_v2 && g_driver.cuMemHostUnregister &&
              g_driver.cuMemHostRegister_v2(memory_, kPlaces * kPlaceBytes, 0) == CUDA_SUCCESS;
  }
  return memory_ + place * kPlaceBytes + offset;
}

Read Staging::read(const Part& part, char* to) {
  for (uint64_t done = 0; done < part.bytes;) {
    const ssize_t got =
        pread(part.fd, to + done, part.bytes - done, static_cast<off_t>(part.offset + done));
    if (got > 0) {
      done += static_cast<uint64_t>(got);
    } else if (got == 0) {
      return Read::kLost;  // shorter than it was
    } else if (errno == ENOMEM || errno == EAGAIN) {
      return Read::kLater;
    } else if (errno != EINTR) {
      return Read::kLost;
    }
  }
  return Read::kDone;
}

void Staging::drop() {
  if (!memory_) return;
  if (pinned_) g_driver.cuMemHostUnregister(memory_);
  munmap(memory_, kPlaces * kPlaceBytes);
  memory_ = nullptr;
  pinned_ = false;
}

}  // namespace tandem::shim::swap
