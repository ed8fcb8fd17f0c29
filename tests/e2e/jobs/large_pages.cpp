// Preloaded into a program: memory system calls answer like a kernel with pages of 64 KiB.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace {

constexpr uintptr_t kPage = 64 * 1024;
constexpr int kAtThatPlace = MAP_FIXED | MAP_FIXED_NOREPLACE;

bool is_at_page(const void* at) { return reinterpret_cast<uintptr_t>(at) % kPage == 0; }
uintptr_t whole(uintptr_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
int refuse() {
  errno = EINVAL;
  return -1;
}
void* really_map(void* at, size_t bytes, int protection, int flags, int file, off_t offset) {
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, bytes, protection, flags, file, offset));
}

// Returns an unused range of addresses that starts at such a page.
void* find_room(size_t bytes) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const got = really_map(nullptr, bytes + kPage, PROT_NONE, kFlags, -1, 0);
  if (got == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(got), at = whole(begin);
  if (at != begin) syscall(SYS_munmap, begin, at - begin);
  if (at != begin + kPage) syscall(SYS_munmap, at + bytes, begin + kPage - at);
  return reinterpret_cast<void*>(at);
}

}  // namespace

extern "C" {

void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  const bool is_placed = (flags & kAtThatPlace) != 0;
  if (bytes == 0 || offset % static_cast<off_t>(kPage) != 0 || (is_placed && !is_at_page(at))) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  bytes = whole(bytes);
  if (!is_placed && !(at = find_room(bytes))) return MAP_FAILED;
  return really_map(at, bytes, protection, is_placed ? flags : flags | MAP_FIXED, file, offset);
}

void* mmap64(void* at, size_t bytes, int protection, int flags, int file, off64_t offset) noexcept {
  return mmap(at, bytes, protection, flags, file, offset);
}

int munmap(void* at, size_t bytes) noexcept {
  return is_at_page(at) ? static_cast<int>(syscall(SYS_munmap, at, whole(bytes))) : refuse();
}

int madvise(void* at, size_t bytes, int advice) noexcept {
  return is_at_page(at) ? static_cast<int>(syscall(SYS_madvise, at, whole(bytes), advice))
                        : refuse();
}

int mprotect(void* at, size_t bytes, int protection) noexcept {
  return is_at_page(at) ? static_cast<int>(syscall(SYS_mprotect, at, whole(bytes), protection))
                        : refuse();
}

long sysconf(int name) noexcept {
  if (name == _SC_PAGESIZE) return kPage;
  static const auto next = reinterpret_cast<long (*)(int)>(dlsym(RTLD_NEXT, "sysconf"));
  return next(name);
}

}  // extern "C"
