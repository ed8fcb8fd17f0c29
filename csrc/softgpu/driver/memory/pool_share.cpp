// Pools and their memory in other processes. An exportable pool is passed as the descriptor of the
// file behind it, an allocation as a position in that file.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "ipc.h"
#include "pool.h"

namespace softgpu {
namespace {

constexpr uint64_t kPoolMagic = 0x316c6f6f504d7047;  // "GpMPool1"

struct ExportData {
  uint64_t magic;
  uint64_t file;  // inode of the pool's file
  uint64_t offset, bytes;
  char unused[32];
};
static_assert(sizeof(ExportData) == sizeof(CUmemPoolPtrExportData));

uint64_t file_of(const Pool& pool) {
  struct stat info;
  return pool.fd >= 0 && fstat(pool.fd, &info) == 0 ? info.st_ino : 0;
}

Pool* import_pool(Runtime& rt, int fd) {
  int device = 0;
  uint64_t unused = 0;
  struct stat info;
  if (!identify_memory(rt, fd, "pool", &device, &unused) || fstat(fd, &info) != 0 ||
      info.st_size <= 0) {
    return nullptr;
  }
  const auto capacity = static_cast<size_t>(info.st_size);
  void* pages = mmap(nullptr, capacity, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (pages == MAP_FAILED) return nullptr;
  auto* pool = new Pool;
  pool->props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  pool->props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  pool->props.location.id = device;
  pool->device = device;
  pool->imported = true;
  pool->base = reinterpret_cast<uintptr_t>(pages);
  pool->capacity = capacity;
  pool->fd = fd;
  rt.pools.push_back(pool);
  return pool;
}

// Allocations may share a page, so an opened page stays open as long as the pool.
bool open_pages(const Pool& pool, const ExportData& data) {
  const uintptr_t begin = (pool.base + data.offset) / kPage * kPage;
  const uintptr_t end = round_up(pool.base + data.offset + data.bytes, kPage);
  return mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ | PROT_WRITE) == 0;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuMemPoolExportToShareableHandle(void* out, CUmemoryPool handle,
                                             CUmemAllocationHandleType type,
                                             unsigned long long flags) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const Pool* pool = pool_of(call.rt, handle);
  if (!pool || !out || flags != 0 || pool->imported || pool->fd < 0 ||
      type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int fd = fcntl(pool->fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  memcpy(out, &fd, sizeof fd);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemPoolImportFromShareableHandle(CUmemoryPool* out, void* handle,
                                               CUmemAllocationHandleType type,
                                               unsigned long long flags) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  if (!out || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int fd = fcntl(static_cast<int>(reinterpret_cast<intptr_t>(handle)), F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  Pool* pool = import_pool(call.rt, fd);
  if (!pool) {
    close(fd);
    return CUDA_ERROR_INVALID_VALUE;
  }
  *out = reinterpret_cast<CUmemoryPool>(pool);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemPoolExportPointer(CUmemPoolPtrExportData* out, CUdeviceptr pointer) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  const auto found = call.rt.ranges.find(pointer);
  if (!out || found == call.rt.ranges.end()) return CUDA_ERROR_INVALID_VALUE;
  const Range& range = found->second;
  if (!range.pool || range.pool->imported || range.pool->fd < 0) return CUDA_ERROR_INVALID_VALUE;
  const ExportData made{
      kPoolMagic, file_of(*range.pool), range.begin - range.pool->base, range.bytes, {}};
  memcpy(out, &made, sizeof made);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuMemPoolImportPointer(CUdeviceptr* out, CUmemoryPool handle,
                                   CUmemPoolPtrExportData* data) {
  Call call(Call::kNothing);
  if (call.error) return call.error;
  Pool* pool = pool_of(call.rt, handle);
  if (!out || !data || !pool || !pool->imported) return CUDA_ERROR_INVALID_VALUE;
  ExportData given;
  memcpy(&given, data, sizeof given);
  if (given.magic != kPoolMagic || given.file != file_of(*pool) || given.bytes == 0 ||
      given.offset > pool->capacity || given.bytes > pool->capacity - given.offset ||
      pool->imports.count(given.offset)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!open_pages(*pool, given)) return CUDA_ERROR_OUT_OF_MEMORY;
  pool->imports.insert(given.offset);
  Range range{pool->base + given.offset, given.bytes, RangeKind::kDevice, nullptr, pool->device};
  range.pool = pool;
  range.id = call.rt.next_number();
  *out = range.begin;
  call.rt.ranges.emplace(range.begin, std::move(range));
  return CUDA_SUCCESS;
}
