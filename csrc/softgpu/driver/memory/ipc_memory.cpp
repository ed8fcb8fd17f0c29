// Linear memory that other processes map: the legacy IPC calls.
//
// Memory is anonymous until a process asks for a handle to it; then a file takes its place. The
// handle says where an opener finds that file, through /proc of the process that made it, and which
// ledger entry the bytes belong to. The opener holds that entry too, so the memory counts until the
// last process has closed it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "green_context.h"
#include "ipc.h"
#include "pool_arena.h"
#include "reach.h"

namespace softgpu {
namespace {

constexpr uint64_t kMemoryMagic = 0x31726f6d654d7047;  // "GpMemor1"

struct MemoryHandle {
  uint64_t magic;
  uint32_t maker;  // client id, of the device process
  int32_t pid, fd;
  uint32_t gpu;   // number in the device process
  uint64_t file;  // inode: by now the descriptor may refer to another file
  uint64_t allocation, bytes;
  char unused[16];
};
static_assert(sizeof(MemoryHandle) == sizeof(CUipcMemHandle));

bool is_zero(const char* page) {
  static const char kZero[kPage] = {};
  return memcmp(page, kZero, kPage) == 0;
}

// Pages that were never written stay holes in the file.
bool copy_into(int fd, const char* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kPage) {
    if (is_zero(from + at)) continue;
    if (pwrite(fd, from + at, kPage, static_cast<off_t>(at)) != static_cast<ssize_t>(kPage)) {
      return false;
    }
  }
  return true;
}

int open_of_maker(const MemoryHandle& handle) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.pid, handle.fd);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return -1;
  struct stat info;
  if (fstat(fd, &info) == 0 && info.st_ino == handle.file &&
      static_cast<size_t>(info.st_size) == round_up(handle.bytes, kPage)) {
    return fd;
  }
  close(fd);
  return -1;
}

Range* opened_before(Runtime& rt, const MemoryHandle& handle) {
  for (auto& [begin, range] : rt.ranges) {
    if (range.opens > 0 && range.file == handle.file) return &range;
  }
  return nullptr;
}

CUresult map_handle(Call& call, const MemoryHandle& handle, int fd, CUdeviceptr* out) {
  proto::MemReply reply;
  Context* context = call.context;
  if (!call.rt.ask_retain(call.lock, handle.allocation, &reply)) {
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
  }
  if (reply.status) return CUDA_ERROR_MAP_FAILED;  // freed meanwhile
  void* pages = mmap(nullptr, round_up(handle.bytes, kPage), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (pages == MAP_FAILED || !context->alive) {
    if (pages != MAP_FAILED) munmap(pages, round_up(handle.bytes, kPage));
    call.rt.post(proto::Type::kMemRelease, proto::MemRelease{{}, handle.allocation});
    return context->alive ? CUDA_ERROR_MAP_FAILED : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  Range range{reinterpret_cast<uintptr_t>(pages), handle.bytes, RangeKind::kDevice, context,
              context->device};
  range.allocation = handle.allocation;
  range.id = call.rt.next_number();
  range.opens = 1;
  range.file = handle.file;
  call.rt.ranges.emplace(range.begin, std::move(range));
  *out = reinterpret_cast<CUdeviceptr>(pages);
  return CUDA_SUCCESS;
}

}  // namespace

int make_memory_file(const Runtime& rt, const char* kind, int device, uint64_t allocation,
                     size_t bytes) {
  char name[64];
  snprintf(name, sizeof name, "softgpu-%s:%u:%" PRIu64, kind, rt.gpu_of(device), allocation);
  const int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, static_cast<off_t>(bytes)) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

bool identify_memory(const Runtime& rt, int fd, const char* kind, int* device,
                     uint64_t* allocation) {
  char path[64], name[128] = {}, pattern[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (readlink(path, name, sizeof name - 1) <= 0) return false;
  snprintf(pattern, sizeof pattern, "/memfd:softgpu-%s:%%u:%%" SCNu64, kind);
  uint32_t gpu = 0;
  if (sscanf(name, pattern, &gpu, allocation) != 2) return false;
  *device = rt.ordinal_of(gpu);
  return *device >= 0;
}

bool make_shareable(Runtime& rt, Range& range) {
  if (range.fd >= 0) return true;
  const size_t bytes = round_up(range.bytes, kPage);
  const int fd = make_memory_file(rt, "linear", range.device, range.allocation, bytes);
  if (fd < 0) return false;
  const Lock nobody_at_work(rt.bodies);
  reveal(rt, range.begin);
  void* pages = reinterpret_cast<void*>(range.begin);
  struct stat info;
  if (fstat(fd, &info) != 0 || !copy_into(fd, static_cast<const char*>(pages), bytes) ||
      mmap(pages, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0) ==
          MAP_FAILED) {
    close(fd);
    return false;
  }
  range.fd = fd;
  range.file = info.st_ino;
  return true;
}

}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuIpcGetMemHandle(CUipcMemHandle* out, CUdeviceptr pointer) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  const auto found = call.rt.ranges.find(pointer);
  if (!out || found == call.rt.ranges.end()) return CUDA_ERROR_INVALID_VALUE;
  Range& range = found->second;
  // Memory of pools, of cuMemCreate and of other processes is shared in other ways.
  if (range.kind != RangeKind::kDevice || range.pool || range.opens > 0 || range.managed) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!make_shareable(call.rt, range)) return CUDA_ERROR_OUT_OF_MEMORY;
  const MemoryHandle made{
      kMemoryMagic, call.rt.device.client_id, getpid(),    range.fd, call.rt.gpu_of(range.device),
      range.file,   range.allocation,         range.bytes, {}};
  memcpy(out, &made, sizeof made);
  return CUDA_SUCCESS;
}

SOFTGPU_API cuIpcOpenMemHandle_v2(CUdeviceptr* out, CUipcMemHandle handle, unsigned int flags) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  MemoryHandle given;
  memcpy(&given, &handle, sizeof given);
  if (given.magic != kMemoryMagic || given.bytes == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (given.maker == call.rt.device.client_id) return CUDA_ERROR_INVALID_CONTEXT;
  if (Range* before = opened_before(call.rt, given)) {
    // One context of a process may open it, as often as it likes.
    if (before->context != call.context) return CUDA_ERROR_INVALID_CONTEXT;
    ++before->opens;
    *out = before->begin;
    return CUDA_SUCCESS;
  }
  const proto::DeviceInfo& own = call.rt.device.device[call.context->device];
  // MIG isolates instances.
  if (own.gpu_instance && own.gpu != given.gpu) return CUDA_ERROR_MAP_FAILED;
  const int fd = open_of_maker(given);
  if (fd < 0) return CUDA_ERROR_MAP_FAILED;  // the memory or its process is gone
  const CUresult result = map_handle(call, given, fd, out);
  close(fd);
  return result;
}

SOFTGPU_API cuIpcOpenMemHandle(CUdeviceptr* out, CUipcMemHandle handle, unsigned int flags) {
  return cuIpcOpenMemHandle_v2(out, handle, flags);
}

SOFTGPU_API cuIpcCloseMemHandle(CUdeviceptr pointer) {
  Call call(Call::kContext);
  if (call.error) return call.error;
  const auto found = call.rt.ranges.find(pointer);
  if (found == call.rt.ranges.end() || found->second.opens == 0) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second.opens > 0) return CUDA_SUCCESS;
  ++found->second.opens;  // keep it open while work that may use it ends
  call.rt.wait_for_ops(call.lock, last_ops_of(found->second.context));
  const auto again = call.rt.ranges.find(pointer);
  if (again == call.rt.ranges.end() || again->second.opens == 0) return CUDA_ERROR_INVALID_VALUE;
  if (--again->second.opens > 0) return CUDA_SUCCESS;  // opened once more meanwhile
  unmap_range(again->second);
  call.rt.post(proto::Type::kMemRelease, proto::MemRelease{{}, again->second.allocation});
  call.rt.ranges.erase(again);
  if (!call.rt.is_virtual()) call.rt.flush();
  return CUDA_SUCCESS;
}
