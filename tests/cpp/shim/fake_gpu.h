// A driver whose device memory is real memory of this process, with a capacity and planted
// failures.
//
// Copies happen as late as they may: when somebody waits for them. By then everything that a copy
// or its end touches must be mapped, and everything mapped must have been created.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "check.h"
#include "pages.h"

namespace fake_gpu {

using pages::g_driver;

struct Physical {
  int fd;
  uint64_t bytes;
};
struct Mapping {
  uint64_t bytes;
  CUmemGenericAllocationHandle handle;
};
struct Copy {
  void* to;
  const void* from;
  uint64_t bytes;
  uint64_t end_ns;
  bool is_last = false;  // the last one before an event
};
// How the calling thread and the single copy engine spend their time, if operations take any.
struct Times {
  uint64_t copy_ns = 0, map_ns = 0;  // for each; to map is to create or remove a piece
  uint64_t thread_ns = 0, engine_ns = 0;
  uint64_t idle_ns = 0;  // of the engine, between copies
};
struct Gpu {
  std::mutex lock;
  std::atomic<uint64_t> capacity = uint64_t{1} << 30;
  uint64_t used = 0;
  std::map<CUmemGenericAllocationHandle, Physical> physical;
  std::map<CUdeviceptr, uint64_t> reserved;
  std::map<CUdeviceptr, Mapping> mapped;
  std::map<uint64_t, uint64_t> pinned;  // address of host memory -> bytes
  size_t most_pinned = SIZE_MAX;
  std::vector<Copy> copies;
  Times times;
  CUmemGenericAllocationHandle next = 1;
  // From now on the `fail_at`th call fails, and with `for_good` all later ones too.
  int64_t fail_at = 0;
  bool for_good = false;
  int64_t calls = 0;
};
inline Gpu g_gpu;
inline std::atomic<bool> g_held{false};  // holds up everybody who waits for the GPU

// Call with the lock held.
inline bool fails() {
  ++g_gpu.calls;
  if (!g_gpu.fail_at) return false;
  return g_gpu.for_good ? g_gpu.calls >= g_gpu.fail_at : g_gpu.calls == g_gpu.fail_at;
}
inline void plant(int64_t fail_at, bool for_good = false) {
  const std::lock_guard<std::mutex> lock(g_gpu.lock);
  g_gpu.calls = 0;
  g_gpu.fail_at = fail_at;
  g_gpu.for_good = for_good;
}

inline void* as_pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
// Offsets of the pages that begin in a range.
inline std::vector<uint64_t> page_starts(const void* begin, uint64_t bytes) {
  constexpr uint64_t kPage = 4096;
  const auto address = reinterpret_cast<uint64_t>(begin);
  std::vector<uint64_t> found;
  for (uint64_t at = (kPage - address % kPage) % kPage; at < bytes; at += kPage)
    found.push_back(at);
  return found;
}
// As memcpy, in which TSan would look at every word: of much memory it sees a byte of each page,
// which shows who uses memory that is being moved, and takes a fraction of the time.
inline void copy_bytes(void* to, const void* from, uint64_t bytes) {
#if defined(__SANITIZE_THREAD__) && defined(__x86_64__)
  if (bytes > 65536) {
    auto* target = static_cast<volatile char*>(to);
    auto* source = static_cast<const volatile char*>(from);
    for (const uint64_t at : page_starts(from, bytes)) static_cast<void>(source[at]);
    for (const uint64_t at : page_starts(to, bytes)) target[at] = 0;
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
    return;
  }
#endif
  std::memcpy(to, from, bytes);
}
inline bool is_mapped(CUdeviceptr at, uint64_t bytes) {
  const auto after = g_gpu.mapped.upper_bound(at);
  if (after == g_gpu.mapped.begin()) return false;
  const auto& [base, mapping] = *std::prev(after);
  return at + bytes <= base + mapping.bytes;
}
// Events are waited for in order. Copies before an event that fails never happen.
inline void finish_copies(bool good) {
  for (bool last = false; !last && !g_gpu.copies.empty();) {
    const Copy copy = g_gpu.copies.front();
    g_gpu.times.thread_ns = std::max(g_gpu.times.thread_ns, copy.end_ns);
    if (good) copy_bytes(copy.to, copy.from, copy.bytes);
    last = copy.is_last;
    g_gpu.copies.erase(g_gpu.copies.begin());
  }
}
inline void finish_all_copies() {
  while (!g_gpu.copies.empty()) finish_copies(true);
}
inline void begin_copy(void* to, const void* from, uint64_t bytes) {
  Times& times = g_gpu.times;
  const uint64_t start_ns = std::max(times.thread_ns, times.engine_ns);
  if (times.engine_ns) times.idle_ns += start_ns - times.engine_ns;
  times.engine_ns = start_ns + times.copy_ns;
  g_gpu.copies.push_back({to, from, bytes, times.engine_ns});
}
inline bool is_on_its_way(CUdeviceptr at, uint64_t bytes) {
  const char* begin = static_cast<const char*>(as_pointer(at));
  const auto touches = [&](const void* other) { return other >= begin && other < begin + bytes; };
  return std::any_of(g_gpu.copies.begin(), g_gpu.copies.end(),
                     [&](const Copy& copy) { return touches(copy.to) || touches(copy.from); });
}

// Checks one end of a copy: drivers refuse a range that spans two registrations.
inline bool is_pinned_at_once_or_not(const void* at, uint64_t bytes) {
  const auto begin = reinterpret_cast<uint64_t>(at);
  const auto after = g_gpu.pinned.lower_bound(begin + bytes);
  if (after == g_gpu.pinned.begin()) return true;
  const auto& [base, pinned] = *std::prev(after);
  return base + pinned <= begin || (base <= begin && begin + bytes <= base + pinned);
}

using Guard = std::lock_guard<std::mutex>;
inline constexpr CUresult kFault = CUDA_ERROR_UNKNOWN;

inline void make_memory() {
  g_driver.cuMemGetAllocationGranularity = [](size_t* bytes, const CUmemAllocationProp*,
                                              CUmemAllocationGranularity_flags) {
    return *bytes = 2 << 20, CUDA_SUCCESS;
  };
  g_driver.cuMemAddressReserve = [](CUdeviceptr* out, size_t bytes, size_t, CUdeviceptr,
                                    unsigned long long) {
    const Guard guard(g_gpu.lock);
    if (fails()) return kFault;
    void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *out = reinterpret_cast<CUdeviceptr>(at);
    g_gpu.reserved[*out] = bytes;
    return CUDA_SUCCESS;
  };
  g_driver.cuMemAddressFree = [](CUdeviceptr at, size_t bytes) {
    const Guard guard(g_gpu.lock);
    CHECK(!is_mapped(at, 1));
    CHECK_EQ(g_gpu.reserved.at(at), bytes);
    g_gpu.reserved.erase(at);
    munmap(as_pointer(at), bytes);
    return CUDA_SUCCESS;
  };
  g_driver.cuMemCreate = [](CUmemGenericAllocationHandle* out, size_t bytes,
                            const CUmemAllocationProp*, unsigned long long) {
    const Guard guard(g_gpu.lock);
    if (fails()) return kFault;
    if (g_gpu.used + bytes > g_gpu.capacity) return CUDA_ERROR_OUT_OF_MEMORY;
    const int fd = memfd_create("device", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0);
    g_gpu.used += bytes;
    g_gpu.times.thread_ns += g_gpu.times.map_ns;
    g_gpu.physical[*out = g_gpu.next++] = {fd, bytes};
    return CUDA_SUCCESS;
  };
  g_driver.cuMemRelease = [](CUmemGenericAllocationHandle handle) {
    const Guard guard(g_gpu.lock);
    const Physical gone = g_gpu.physical.at(handle);
    close(gone.fd);
    g_gpu.used -= gone.bytes;
    g_gpu.physical.erase(handle);
    return CUDA_SUCCESS;
  };
  g_driver.cuMemGetInfo_v2 = [](size_t*, size_t*) {
    const Guard guard(g_gpu.lock);
    return fails() ? kFault : CUDA_SUCCESS;
  };
  g_driver.cuMemExportToShareableHandle = [](void* out, CUmemGenericAllocationHandle handle,
                                             CUmemAllocationHandleType, unsigned long long) {
    const Guard guard(g_gpu.lock);
    if (fails()) return kFault;
    *static_cast<int*>(out) = fcntl(g_gpu.physical.at(handle).fd, F_DUPFD_CLOEXEC, 0);
    return CUDA_SUCCESS;
  };
  g_driver.cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle* out, void* handle,
                                               CUmemAllocationHandleType) {
    const Guard guard(g_gpu.lock);
    if (fails()) return kFault;
    const int fd = fcntl(static_cast<int>(reinterpret_cast<intptr_t>(handle)), F_DUPFD_CLOEXEC, 0);
    const off_t bytes = lseek(fd, 0, SEEK_END);
    CHECK(bytes > 0);
    g_gpu.used += static_cast<uint64_t>(bytes);
    g_gpu.physical[*out = g_gpu.next++] = {fd, static_cast<uint64_t>(bytes)};
    return CUDA_SUCCESS;
  };
  g_driver.cuMemMap = [](CUdeviceptr at, size_t bytes, size_t, CUmemGenericAllocationHandle handle,
                         unsigned long long) {
    const Guard guard(g_gpu.lock);
    CHECK(!is_mapped(at, 1));
    if (fails()) return kFault;
    mmap(as_pointer(at), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
         g_gpu.physical.at(handle).fd, 0);
    g_gpu.mapped[at] = {bytes, handle};
    return CUDA_SUCCESS;
  };
  g_driver.cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
    const Guard guard(g_gpu.lock);
    return fails() ? kFault : CUDA_SUCCESS;
  };
  g_driver.cuMemUnmap = [](CUdeviceptr at, size_t bytes) {
    const Guard guard(g_gpu.lock);
    CHECK(!is_on_its_way(at, bytes));
    if (fails()) return kFault;
    CHECK_EQ(g_gpu.mapped.at(at).bytes, bytes);
    g_gpu.mapped.erase(at);
    g_gpu.times.thread_ns += g_gpu.times.map_ns;
    mmap(as_pointer(at), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
         -1, 0);
    return CUDA_SUCCESS;
  };
}

inline void make_work() {
  g_driver.cuCtxSynchronize = [] {
    while (g_held) usleep(50);
    const Guard guard(g_gpu.lock);
    if (fails()) return kFault;
    finish_all_copies();
    return CUDA_SUCCESS;
  };
  g_driver.cuStreamSynchronize = [](CUstream) {
    const Guard guard(g_gpu.lock);
    finish_all_copies();
    return CUDA_SUCCESS;
  };
  g_driver.cuEventRecord = [](CUevent, CUstream) {
    const Guard guard(g_gpu.lock);
    if (!g_gpu.copies.empty()) g_gpu.copies.back().is_last = true;
    return CUDA_SUCCESS;
  };
  g_driver.cuEventSynchronize = [](CUevent) {
    const Guard guard(g_gpu.lock);
    const bool good = !fails();
    finish_copies(good);
    return good ? CUDA_SUCCESS : kFault;
  };
  g_driver.cuStreamQuery = [](CUstream) { return CUDA_SUCCESS; };
  g_driver.cuCtxSetCurrent = [](CUcontext) {
    const Guard guard(g_gpu.lock);
    return fails() ? kFault : CUDA_SUCCESS;
  };
  g_driver.cuCtxPushCurrent_v2 = [](CUcontext) { return CUDA_SUCCESS; };
  g_driver.cuCtxPopCurrent_v2 = pages::current;
  g_driver.cuStreamCreate = [](CUstream* out, unsigned) {
    const Guard guard(g_gpu.lock);
    return *out = nullptr, fails() ? kFault : CUDA_SUCCESS;
  };
  g_driver.cuStreamDestroy_v2 = [](CUstream) { return CUDA_SUCCESS; };
  g_driver.cuEventCreate = [](CUevent* out, unsigned) {
    const Guard guard(g_gpu.lock);
    return *out = reinterpret_cast<CUevent>(1), fails() ? kFault : CUDA_SUCCESS;
  };
  g_driver.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
  g_driver.cuMemHostRegister_v2 = [](void* at, size_t bytes, unsigned) {
    const Guard guard(g_gpu.lock);
    ++pages::g_seen.registrations;
    if (pages::g_seen.refuse_register) return CUDA_ERROR_NOT_SUPPORTED;
    if (g_gpu.pinned.size() == g_gpu.most_pinned) return CUDA_ERROR_OUT_OF_MEMORY;
    g_gpu.pinned[reinterpret_cast<uint64_t>(at)] = bytes;
    return CUDA_SUCCESS;
  };
  g_driver.cuMemHostUnregister = [](void* at) {
    const Guard guard(g_gpu.lock);
    if (fails()) return kFault;
    return g_gpu.pinned.erase(reinterpret_cast<uint64_t>(at))
               ? CUDA_SUCCESS
               : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  };
  g_driver.cuMemcpyDtoHAsync_v2 = [](void* to, CUdeviceptr from, size_t bytes, CUstream) {
    const Guard guard(g_gpu.lock);
    CHECK(is_mapped(from, bytes) && is_pinned_at_once_or_not(to, bytes));
    if (fails()) return kFault;
    begin_copy(to, as_pointer(from), bytes);
    return CUDA_SUCCESS;
  };
  g_driver.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr to, const void* from, size_t bytes, CUstream) {
    const Guard guard(g_gpu.lock);
    CHECK(is_mapped(to, bytes) && is_pinned_at_once_or_not(from, bytes));
    if (fails()) return kFault;
    begin_copy(as_pointer(to), from, bytes);
    return CUDA_SUCCESS;
  };
}

// Frees what a job that lost its device has left behind.
inline void free_all() {
  for (const auto& [at, bytes] : g_gpu.reserved) munmap(as_pointer(at), bytes);
  for (const auto& [handle, physical] : g_gpu.physical) close(physical.fd);
  g_gpu.reserved.clear();
  g_gpu.physical.clear();
  g_gpu.mapped.clear();
  g_gpu.pinned.clear();
  g_gpu.copies.clear();
  g_gpu.used = 0;
  g_gpu.times = {};
}

// Makes the driver only once, since movers of earlier tests may still be ending. Afterwards no
// failure is planted, and all memory is free.
inline void make_once() {
  static const bool made = [] {
    pages::make_driver();
    make_memory();
    make_work();
    return true;
  }();
  CHECK(made);
  plant(0);
  const Guard guard(g_gpu.lock);
  g_gpu.capacity = uint64_t{1} << 30;
  g_gpu.most_pinned = SIZE_MAX;
  free_all();
}

}  // namespace fake_gpu
