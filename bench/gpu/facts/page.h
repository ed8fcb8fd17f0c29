// A page shared by the device and processes, like the shim's slots: a sealed memfd.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

#include "device.h"

using Word = std::atomic<uint64_t>;  // the device writes, the host polls
static_assert(sizeof(Word) == 8 && Word::is_always_lock_free);

class Page {
 public:
  static constexpr size_t kBytes = 4096;

  // In a memfd, or in plain memory of this process.
  explicit Page(bool memfd) {
    int flags = MAP_SHARED;
    if (memfd) {
      descriptor_ = memfd_create("tandem-facts", MFD_ALLOW_SEALING | MFD_CLOEXEC);
      const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
      if (descriptor_ < 0 || ftruncate(descriptor_, kBytes) != 0 ||
          fcntl(descriptor_, F_ADD_SEALS, seals) != 0) {
        fail("memfd");
      }
    } else {
      flags = MAP_PRIVATE | MAP_ANONYMOUS;
    }
    at_ = map(flags);
  }
  ~Page() {
    munmap(at_, kBytes);
    if (descriptor_ >= 0) close(descriptor_);
  }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;

  void* at() const { return at_; }
  // Words are 64 bytes apart, so that none shares a cache line.
  Word& line(size_t index) const { return ((Word*)at_)[index * 8]; }

  // Maps it again, as another process would; null if it has no descriptor.
  Word* mapped_again() const { return descriptor_ < 0 ? nullptr : (Word*)map(MAP_SHARED); }

  CUresult register_it() const {
    return DRIVER(cuMemHostRegister_v2, "cuMemHostRegister")(
        at_, kBytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  }
  CUresult unregister() const { return DRIVER(cuMemHostUnregister, "cuMemHostUnregister")(at_); }
  CUresult find_device_pointer() {
    return DRIVER(cuMemHostGetDevicePointer_v2, "cuMemHostGetDevicePointer")(&device_, at_, 0);
  }
  CUdeviceptr device_line(size_t index) const { return device_ + index * 64; }

 private:
  [[noreturn]] static void fail(const char* what) {
    perror(what);
    exit(1);
  }
  void* map(int flags) const {
    void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, flags, descriptor_, 0);
    if (at == MAP_FAILED) fail("mmap");
    return at;
  }

  int descriptor_ = -1;
  void* at_ = nullptr;
  CUdeviceptr device_ = 0;
};

// Returns a page that the device can write to: in a sealed memfd, or in plain memory if that is
// refused. If both are refused, the program prints why and ends.
inline Page& shared_page() {
  static Page shared(true), plain(false);
  const bool memfd = shared.register_it() == CUDA_SUCCESS;
  Page& page = memfd ? shared : plain;
  if (!memfd) check(page.register_it(), "cuMemHostRegister");
  check(page.find_device_pointer(), "cuMemHostGetDevicePointer");
  return page;
}

inline CUresult write_value(CUstream stream, CUdeviceptr at, uint64_t value) {
  static auto* const call = TRY_DRIVER(cuStreamWriteValue64_v2, "cuStreamWriteValue64");
  if (call == nullptr) return CUDA_ERROR_NOT_FOUND;
  return call(stream, at, value, CU_STREAM_WRITE_VALUE_DEFAULT);
}
