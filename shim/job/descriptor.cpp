#include "descriptor.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "system_calls.h"

namespace tandem::shim {

void Descriptor::adopt(int fd) {
  drop();
  struct stat about{};
  if (fd < 0 || !file_status(fd, &about)) return;
  device_.store(about.st_dev, std::memory_order_relaxed);
  inode_.store(about.st_ino, std::memory_order_relaxed);
  fd_.store(fd, std::memory_order_relaxed);
}

int Descriptor::number() const {
  const int fd = fd_.load(std::memory_order_relaxed);
  if (fd < 0) return -1;
  const int saved = errno;
  struct stat about{};
  const bool ours = file_status(fd, &about) &&
                    about.st_dev == device_.load(std::memory_order_relaxed) &&
                    about.st_ino == inode_.load(std::memory_order_relaxed);
  errno = saved;
  return ours ? fd : -1;
}

void Descriptor::drop() {
  const int fd = number();
  fd_.store(-1, std::memory_order_relaxed);
  if (fd >= 0) close(fd);
}

}  // namespace tandem::shim
