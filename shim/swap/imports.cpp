#include "imports.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "driver.h"
#include "holdings.h"
#include "mutex.h"
#include "offers.h"
#include "own_array.h"
#include "patience.h"
#include "place.h"
#include "share.h"

namespace tandem::shim::swap {
namespace {

constexpr int kAnswerMs = 2000;

struct Mapping {
  CUdeviceptr base = 0;
  uint64_t reserved = 0;
  uint64_t mapped = 0;  // so far, from its beginning on
};

struct Import {
  Token token;
  uint64_t offset;
  uint64_t bytes;
  uint64_t context;
  uint32_t opens;
  Mapping mapping;  // shared by all imports with that token

  [[nodiscard]] CUdeviceptr address() const { return mapping.base + offset; }
};

pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
OwnArray<Import> g_imports;
// Whether there ever was one; relaxed: a caller that asks about an address has seen it opened.
std::atomic<bool> g_any{false};

// An answer and its descriptors; closes those that nobody took.
struct Answered {
  Answer answer{};
  int fd[kPiecesAnAnswer];
  size_t fd_count = 0;

  Answered() = default;
  Answered(const Answered&) = delete;
  Answered& operator=(const Answered&) = delete;
  ~Answered() {
    for (size_t i = 0; i < fd_count; ++i) close(fd[i]);
  }

  void take(msghdr* message) {
    for (cmsghdr* part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
      if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count && fd_count < kPiecesAnAnswer; ++i)
        std::memcpy(&fd[fd_count++], CMSG_DATA(part) + i * sizeof(int), sizeof(int));
    }
  }
};

// A conversation with one owner: the kernel lets nobody else answer.
class Owner {
 public:
  explicit Owner(uint64_t name) : fd_(connect_to(name)) {}
  ~Owner() {
    if (fd_ >= 0) close(fd_);
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  // False: the owner is gone, refuses, or does not answer in time.
  bool ask(const Question& question, Answered* out) const {
    bool sent = false;
    for (Patience patience(kAnswerMs); fd_ >= 0;) {
      // The owner's queue may be full.
      if (!sent) sent = send(fd_, &question, sizeof(question), MSG_NOSIGNAL) >= 0;
      if (!sent && errno != EAGAIN && errno != EINTR) return false;
      if (!patience.wait(fd_)) return false;
      const int got = receive(out);
      if (got != 0) return got > 0 && is_good(question, *out);
    }
    return false;
  }

 private:
  // Bound to a name that the kernel picks, or there would be no address to answer to.
  static int connect_to(uint64_t name) {
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const sockaddr any{AF_UNIX, {}};
    sockaddr_un address;
    const socklen_t size = share_address(name, &address);
    const int yes = 1;
    if (fd >= 0 && bind(fd, &any, sizeof(any.sa_family)) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof(yes)) == 0 &&
        connect(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0) {
      return fd;
    }
    if (fd >= 0) close(fd);
    return -1;
  }

  // > 0: an answer; 0: none yet; < 0: there will be none.
  int receive(Answered* out) const {
    iovec part{&out->answer, sizeof(out->answer)};
    alignas(cmsghdr) char
        control[CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(kPiecesAnAnswer * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t got = recvmsg(fd_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    out->take(&message);
    return got == sizeof(out->answer) && user_of(&message) == int64_t{getuid()} ? 1 : -1;
  }

  static bool is_good(const Question& question, const Answered& answered) {
    const Answer& answer = answered.answer;
    return answer.magic == kShareMagic && answer.reserved != 0 && answer.first == question.first &&
           answer.count != 0 && answer.count == answered.fd_count;
  }

  int fd_;
};

void unmap(const Mapping& mapping) {
  if (mapping.mapped) g_driver.cuMemUnmap(mapping.base, mapping.mapped);
  if (mapping.base) g_driver.cuMemAddressFree(mapping.base, mapping.reserved);
}

CUresult map_piece_of_another(Mapping* mapping, const Answer::Part& part, int fd) {
  if (part.at != mapping->mapped || part.bytes == 0 ||
      part.bytes > mapping->reserved - mapping->mapped) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  CUmemGenericAllocationHandle piece = 0;
  CUresult result = g_driver.cuMemImportFromShareableHandle(
      &piece, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) return result;
  result = g_driver.cuMemMap(mapping->base + part.at, part.bytes, 0, piece, 0);
  g_driver.cuMemRelease(piece);  // the mapping keeps the memory alive
  if (result == CUDA_SUCCESS) mapping->mapped += part.bytes;
  return result;
}

CUresult map_answer(Mapping* mapping, const Answered& answered) {
  const Answer& answer = answered.answer;
  if (!mapping->base) {
    const CUresult result = g_driver.cuMemAddressReserve(&mapping->base, answer.reserved, 0, 0, 0);
    if (result != CUDA_SUCCESS) return result;
    mapping->reserved = answer.reserved;
  }
  for (size_t i = 0; i < answer.count; ++i) {
    const CUresult result = map_piece_of_another(mapping, answer.part[i], answered.fd[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

CUresult map_all(Mapping* mapping, const ShareHandle& handle, uint32_t device) {
  const Owner owner(handle.socket);
  Question question{kShareMagic, handle.token, handle.offset, handle.number, 0};
  do {
    Answered answered;
    if (!owner.ask(question, &answered)) return CUDA_ERROR_INVALID_HANDLE;
    const CUresult result = map_answer(mapping, answered);
    if (result != CUDA_SUCCESS) return result;
    question.first += answered.answer.count;
  } while (mapping->mapped < mapping->reserved);
  if (handle.offset >= mapping->reserved || handle.bytes > mapping->reserved - handle.offset)
    return CUDA_ERROR_INVALID_HANDLE;
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {static_cast<int>(device)}};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return g_driver.cuMemSetAccess(mapping->base, mapping->reserved, &access, 1);
}

bool has_calls() {
  return g_driver.cuMemAddressReserve && g_driver.cuMemImportFromShareableHandle &&
         g_driver.cuMemMap && g_driver.cuMemSetAccess && g_driver.cuMemUnmap &&
         g_driver.cuMemRelease && g_driver.cuMemAddressFree;
}

Import* first_of(const Token& token) {
  for (Import& each : g_imports) {
    if (each.token == token) return &each;
  }
  return nullptr;
}

Import* opened_at(CUdeviceptr address) {
  for (Import& each : g_imports) {
    if (each.address() == address) return &each;
  }
  return nullptr;
}

void erase(const Import* import) {
  const Import gone = *import;
  g_imports.erase(static_cast<size_t>(import - g_imports.begin()));
  if (!first_of(gone.token)) unmap(gone.mapping);
}

// One context of a process may open it, as often as it likes. CUDA_ERROR_NOT_FOUND: it is not
// mapped.
CUresult open_again(const ShareHandle& handle, uint64_t context, CUdeviceptr* address) {
  const Import* known = first_of(handle.token);
  if (!known) return CUDA_ERROR_NOT_FOUND;
  if (known->context != context || handle.offset >= known->mapping.reserved)
    return CUDA_ERROR_INVALID_CONTEXT;
  const Mapping mapping = known->mapping;
  *address = mapping.base + handle.offset;
  if (Import* again = opened_at(*address)) {
    ++again->opens;
    return CUDA_SUCCESS;
  }
  return g_imports.push({handle.token, handle.offset, handle.bytes, context, 1, mapping})
             ? CUDA_SUCCESS
             : CUDA_ERROR_OUT_OF_MEMORY;
}

// Registers what was mapped, unless another thread was quicker.
CUresult open_mapped(const ShareHandle& handle, uint64_t context, const Mapping& mapping,
                     CUdeviceptr* address) {
  const HoldsMutex lock(&g_lock);
  CUresult result = open_again(handle, context, address);
  if (result == CUDA_ERROR_NOT_FOUND) {
    *address = mapping.base + handle.offset;
    if (g_imports.push({handle.token, handle.offset, handle.bytes, context, 1, mapping}))
      return CUDA_SUCCESS;
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  unmap(mapping);
  return result;
}

bool is_held(CUdeviceptr address) {
  const holdings::Locked table;
  return table->find(holdings::Kind::kImported, address) != nullptr;
}

ShareHandle as_shared(const CUipcMemHandle& handle) {
  ShareHandle out;
  std::memcpy(&out, &handle, sizeof(out));
  return out;
}

}  // namespace

bool is_shared_handle(const CUipcMemHandle& handle) {
  return as_shared(handle).magic == kShareMagic;
}

CUresult open_shared(Range* range, const CUipcMemHandle& handle, unsigned flags) {
  const Place place = place_now();
  if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
  if (!place.context || is_own_offer(handle)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!has_calls()) return CUDA_ERROR_INVALID_HANDLE;
  const ShareHandle given = as_shared(handle);
  *range = {0, given.bytes, place.context, 0};
  {
    const HoldsMutex lock(&g_lock);
    g_any.store(true, std::memory_order_relaxed);
    const CUresult result = open_again(given, place.context, &range->base);
    if (result != CUDA_ERROR_NOT_FOUND) return result;
  }
  Mapping mapping;  // unlocked: the owner may take its time
  const CUresult result = map_all(&mapping, given, place.device);
  if (result == CUDA_SUCCESS) return open_mapped(given, place.context, mapping, &range->base);
  unmap(mapping);
  return result;
}

// Unlocked while it waits: the GPU's work may need a thread that opens something.
CUresult close_shared(CUdeviceptr address) {
  if (!g_any.load(std::memory_order_relaxed)) return CUDA_ERROR_NOT_FOUND;
  const Range range = shared_range_at(address);
  if (!range.bytes || range.base != address) return CUDA_ERROR_NOT_FOUND;
  const CUresult waited = wait_for_work(range.context);
  if (waited != CUDA_SUCCESS) return waited;
  const HoldsMutex lock(&g_lock);
  Import* import = opened_at(address);
  if (!import) return CUDA_ERROR_INVALID_VALUE;  // another thread has closed it, too
  if (--import->opens == 0) erase(import);
  return CUDA_SUCCESS;
}

Range shared_range_at(CUdeviceptr address) {
  if (!g_any.load(std::memory_order_relaxed)) return {};
  const HoldsMutex lock(&g_lock);
  for (const Import& each : g_imports) {
    if (address - each.address() < each.bytes) return {each.address(), each.bytes, each.context, 0};
  }
  return {};
}

void close_forgotten() {
  if (!g_any.load(std::memory_order_relaxed)) return;
  const HoldsMutex lock(&g_lock);
  for (size_t at = g_imports.size(); at-- > 0;) {
    if (!is_held(g_imports[at].address())) erase(&g_imports[at]);
  }
}

void forget_imports() {
  pthread_mutex_init(&g_lock, nullptr);
  g_imports.clear();
  g_any.store(false, std::memory_order_relaxed);
}

}  // namespace tandem::shim::swap
