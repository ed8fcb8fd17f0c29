// Has one process create memory and another open it, so that an observer outside can see which
// process is charged for it, and how often. The process that is started opens the memory; it starts
// the other one, the owner, itself, in the same job. Each line on stdin makes it take the next
// step: `made`, `opened`, `freed`. Like every program here that runs under `tandem run`, it first
// prints `up` and waits for a line.
//
//   sharing IMAGE BYTES KIND...        linear, mapped, pool
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <functional>

#include "chunks.h"
#include "talk.h"

namespace {

constexpr auto kByDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

// What one process sends the other about its memory: a handle's bytes, or a descriptor, or both.
struct Parcel {
  union {
    CUipcMemHandle handle;
    CUmemPoolPtrExportData pointer;
  };
  int fd = -1;
};

void send(int socket, const Parcel& parcel) {
  Parcel copy = parcel;
  iovec bytes{&copy, sizeof copy};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (parcel.fd >= 0) {
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(rights), &parcel.fd, sizeof(int));
  }
  if (sendmsg(socket, &message, MSG_NOSIGNAL) != (ssize_t)sizeof copy) perror("sendmsg");
}

// Ends this process if the other one has ended: its last output is in the log.
Parcel receive(int socket) {
  Parcel parcel;
  iovec bytes{&parcel, sizeof parcel};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof parcel) {
    fprintf(stderr, "the other process has ended\n");
    exit(1);
  }
  parcel.fd = -1;
  if (const cmsghdr* const rights = CMSG_FIRSTHDR(&message))
    memcpy(&parcel.fd, CMSG_DATA(rights), sizeof(int));
  return parcel;
}

using GiveBack = std::function<void()>;

void synchronize() { check(DRIVER(cuCtxSynchronize, "cuCtxSynchronize")(), "synchronize"); }

void touch(CUdeviceptr at, size_t bytes) {
  check(DRIVER(cuMemsetD8_v2, "cuMemsetD8")(at, 1, bytes), "cuMemsetD8");
  synchronize();
}

CUmemAccessDesc both_ways() {
  return {chunk_properties(true).location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

// Maps the memory to a range of addresses.
GiveBack map(CUmemGenericAllocationHandle memory, size_t bytes) {
  const ChunkCalls calls;
  CUdeviceptr at = 0;
  const CUmemAccessDesc access = both_ways();
  check(calls.reserve(&at, bytes, 0, 0, 0), "cuMemAddressReserve");
  check(calls.map(at, bytes, 0, memory, 0), "cuMemMap");
  check(calls.set_access(at, bytes, &access, 1), "cuMemSetAccess");
  touch(at, bytes);
  return [=] {
    check(calls.unmap(at, bytes), "cuMemUnmap");
    check(calls.free(at, bytes), "cuMemAddressFree");
    check(calls.release(memory), "cuMemRelease");
  };
}

GiveBack make_linear(size_t bytes, Parcel* parcel) {
  CUdeviceptr at = 0;
  check(DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&at, bytes), "cuMemAlloc");
  touch(at, bytes);
  check(DRIVER(cuIpcGetMemHandle, "cuIpcGetMemHandle")(&parcel->handle, at), "cuIpcGetMemHandle");
  return [=] { check(DRIVER(cuMemFree_v2, "cuMemFree")(at), "cuMemFree"); };
}

GiveBack open_linear(size_t bytes, const Parcel& parcel) {
  CUdeviceptr at = 0;
  check(DRIVER(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle")(&at, parcel.handle,
                                                            CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        "cuIpcOpenMemHandle");
  touch(at, bytes);
  return [=] { check(DRIVER(cuIpcCloseMemHandle, "cuIpcCloseMemHandle")(at), "close"); };
}

GiveBack make_mapped(size_t bytes, Parcel* parcel) {
  const CUmemAllocationProp properties = chunk_properties(true);
  CUmemGenericAllocationHandle memory;
  check(DRIVER(cuMemCreate, "cuMemCreate")(&memory, bytes, &properties, 0), "cuMemCreate");
  check(DRIVER(cuMemExportToShareableHandle, "cuMemExportToShareableHandle")(&parcel->fd, memory,
                                                                             kByDescriptor, 0),
        "cuMemExportToShareableHandle");
  return map(memory, bytes);
}

GiveBack open_mapped(size_t bytes, const Parcel& parcel) {
  CUmemGenericAllocationHandle memory;
  check(DRIVER(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle")(
            &memory, (void*)(intptr_t)parcel.fd, kByDescriptor),
        "cuMemImportFromShareableHandle");
  return map(memory, bytes);
}

GiveBack free_in(CUmemoryPool pool, CUdeviceptr at) {
  return [=] {
    check(DRIVER(cuMemFreeAsync, "cuMemFreeAsync")(at, nullptr), "cuMemFreeAsync");
    synchronize();
    check(DRIVER(cuMemPoolDestroy, "cuMemPoolDestroy")(pool), "cuMemPoolDestroy");
  };
}

GiveBack make_in_pool(size_t bytes, Parcel* parcel) {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = kByDescriptor;
  properties.location = both_ways().location;
  CUmemoryPool pool;
  check(DRIVER(cuMemPoolCreate, "cuMemPoolCreate")(&pool, &properties), "cuMemPoolCreate");
  CUdeviceptr at = 0;
  check(DRIVER(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync")(&at, bytes, pool, nullptr),
        "cuMemAllocFromPoolAsync");
  touch(at, bytes);
  check(DRIVER(cuMemPoolExportToShareableHandle, "cuMemPoolExportToShareableHandle")(
            &parcel->fd, pool, kByDescriptor, 0),
        "cuMemPoolExportToShareableHandle");
  check(DRIVER(cuMemPoolExportPointer, "cuMemPoolExportPointer")(&parcel->pointer, at),
        "cuMemPoolExportPointer");
  return free_in(pool, at);
}

GiveBack open_in_pool(size_t bytes, const Parcel& parcel) {
  CUmemoryPool pool;
  check(DRIVER(cuMemPoolImportFromShareableHandle, "cuMemPoolImportFromShareableHandle")(
            &pool, (void*)(intptr_t)parcel.fd, kByDescriptor, 0),
        "cuMemPoolImportFromShareableHandle");
  const CUmemAccessDesc access = both_ways();
  check(DRIVER(cuMemPoolSetAccess, "cuMemPoolSetAccess")(pool, &access, 1), "cuMemPoolSetAccess");
  CUmemPoolPtrExportData pointer = parcel.pointer;
  CUdeviceptr at = 0;
  check(DRIVER(cuMemPoolImportPointer, "cuMemPoolImportPointer")(&at, pool, &pointer),
        "cuMemPoolImportPointer");
  touch(at, bytes);
  return free_in(pool, at);
}

struct Kind {
  const char* name;
  GiveBack (*make)(size_t, Parcel*);
  GiveBack (*open)(size_t, const Parcel&);
};
constexpr Kind kKinds[] = {{"linear", make_linear, open_linear},
                           {"mapped", make_mapped, open_mapped},
                           {"pool", make_in_pool, open_in_pool}};

using Wanted = std::vector<Kind>;

// Uses each kind once: what the driver creates at a first use is not part of the memory's cost.
void begin(const char* image, const Wanted& kinds) {
  make_module(image);
  for (const Kind& kind : kinds) {
    Parcel unused;
    kind.make(chunk_granularity(false), &unused)();
    if (unused.fd >= 0) close(unused.fd);
  }
}

// Creates each kind of memory when the other process asks for it, keeps it until the other has
// finished, and confirms each step.
void own(const char* image, const Wanted& kinds, size_t bytes, int socket) {
  begin(image, kinds);
  send(socket, {});
  for (const Kind& kind : kinds) {
    receive(socket);
    Parcel parcel;
    const GiveBack give_back = kind.make(bytes, &parcel);
    send(socket, parcel);
    if (parcel.fd >= 0) close(parcel.fd);
    receive(socket);
    give_back();
    send(socket, {});
  }
  receive(socket);
}

void open(const char* image, const Wanted& kinds, size_t bytes, pid_t owner, int socket) {
  event("up").print();
  next_order();
  begin(image, kinds);
  receive(socket);
  event("ready").print();
  next_order();
  for (const Kind& kind : kinds) {
    if (!next_order()) return;
    send(socket, {});
    const Parcel parcel = receive(socket);
    event("made").add("owner", (uint64_t)owner).add("asked_bytes", (uint64_t)bytes).print();
    if (!next_order()) return;
    const GiveBack give_back = kind.open(bytes, parcel);
    if (parcel.fd >= 0) close(parcel.fd);
    event("opened").print();
    if (!next_order()) return;
    give_back();
    send(socket, {});
    receive(socket);
    event("freed").print();
  }
  next_order();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const size_t bytes = strtoull(argv[2], nullptr, 10);
  const char* const end_of_owner = getenv("SHARING_END");
  Wanted kinds;
  for (int i = 3; i < argc; i++) {
    const auto kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& one) {
      return argv[i] == std::string(one.name);
    });
    if (kind == std::end(kKinds)) return 2;
    kinds.push_back(*kind);
  }
  if (end_of_owner != nullptr) {
    own(argv[1], kinds, bytes, atoi(end_of_owner));
    return 0;
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) return 1;
  const pid_t owner = fork();
  if (owner == 0) {
    close(ends[0]);
    setenv("SHARING_END", std::to_string(ends[1]).c_str(), 1);
    execv("/proc/self/exe", argv);
    _exit(127);
  }
  close(ends[1]);
  open(argv[1], kinds, bytes, owner, ends[0]);
  close(ends[0]);  // ends the other process if it is still waiting
  waitpid(owner, nullptr, 0);
  return 0;
}
