// A crowd of processes that attach at the same moment, each by the protocol of csrc/core/wire.h as the
// shim speaks it: HELLO, WELCOME with three descriptors, maps, MAPPED. Prints one line:
//
//   attached N lost M wall_ns W      (from the start signal to the slowest process)
//
// and then holds the connections until stdin ends.
//
//   attach SOCKET COUNT
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shm_layout.h"
#include "wire.h"

namespace {

using namespace tandem;

enum { kMaxProcesses = 4096 };

struct Shared {
  volatile uint64_t done_ns[kMaxProcesses];  // 0 = lost; written by that process alone
};

uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

int connect_to(const char* path) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  // A full backlog answers EAGAIN on a unix socket: the caller tries again, as the shim does.
  for (int tries = 0; tries < 2000; ++tries) {
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
    if (errno != EAGAIN && errno != EINTR) break;
    usleep(1000);
  }
  close(fd);
  return -1;
}

wire::Hello hello() {
  wire::Hello message{};
  message.header = {wire::kMagic, wire::kProtocolVersion, static_cast<uint16_t>(wire::Type::kHello),
                    sizeof message, 0};
  message.layout_min = message.layout_max = shm::kLayoutVersion;
  message.shim_version = 1 << 8;
  message.request.memory_bytes = message.request.memory_min_bytes = shm::kNoLimit;
  strcpy(message.request.name, "crowd");
  return message;
}

bool receive_welcome(int fd, int (&fds)[3]) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)];
  char packet[wire::kMaxMessageBytes];
  iovec part{packet, sizeof packet};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) < static_cast<ssize_t>(sizeof(wire::Header)))
    return false;
  const cmsghdr* rights = CMSG_FIRSTHDR(&message);
  wire::Header header;
  memcpy(&header, packet, sizeof header);
  if (header.type != static_cast<uint16_t>(wire::Type::kWelcome) || rights == nullptr) return false;
  if (rights->cmsg_len != CMSG_LEN(sizeof fds)) return false;
  memcpy(fds, CMSG_DATA(rights), sizeof fds);
  return true;
}

bool attach(const char* path) {
  const int fd = connect_to(path);
  if (fd < 0) return false;
  const wire::Hello message = hello();
  if (send(fd, &message, sizeof message, MSG_NOSIGNAL) != sizeof message) return false;
  int fds[3];
  if (!receive_welcome(fd, fds)) return false;
  const void* command = mmap(nullptr, shm::kCommandBytes, PROT_READ, MAP_SHARED, fds[0], 0);
  const void* state = mmap(nullptr, shm::kStateBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
  const void* presence =
      mmap(nullptr, shm::kPresenceBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[2], 0);
  if (command == MAP_FAILED || state == MAP_FAILED || presence == MAP_FAILED) return false;
  const wire::Mapped mapped{{wire::kMagic, wire::kProtocolVersion,
                             static_cast<uint16_t>(wire::Type::kMapped), sizeof mapped, 0}};
  return send(fd, &mapped, sizeof mapped, MSG_NOSIGNAL) == sizeof mapped;  // fd stays open: the lease
}

// The start signal is the end of `start`: a thousand sleepers that look at a word starve the machine.
[[noreturn]] void be_one(const char* path, Shared* shared, uint32_t index, const int (&start)[2]) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  close(start[1]);
  char byte;
  while (read(start[0], &byte, 1) > 0) {
  }
  if (attach(path)) shared->done_ns[index] = now_ns();
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  const uint32_t count = argc == 3 ? static_cast<uint32_t>(atoi(argv[2])) : 0;
  if (count == 0 || count > kMaxProcesses) return 2;
  auto* shared = static_cast<Shared*>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  static pid_t children[kMaxProcesses];
  int start[2];
  if (pipe(start) != 0) return 1;
  uint32_t started = 0;
  for (; started < count; ++started) {
    children[started] = fork();
    if (children[started] < 0) break;  // as many as the machine takes
    if (children[started] == 0) be_one(argv[1], shared, started, start);
  }
  const uint64_t start_ns = now_ns();
  close(start[1]);
  uint32_t attached = 0;
  while (attached < started && now_ns() - start_ns < 20'000'000'000u) {
    attached = 0;
    for (uint32_t i = 0; i < started; ++i) attached += shared->done_ns[i] != 0;
    usleep(1000);
  }
  uint64_t last_ns = start_ns;
  for (uint32_t i = 0; i < started; ++i)
    if (shared->done_ns[i] > last_ns) last_ns = shared->done_ns[i];
  printf("attached %u lost %u wall_ns %llu\n", attached, started - attached,
         static_cast<unsigned long long>(last_ns - start_ns));
  fflush(stdout);
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
  for (uint32_t i = 0; i < started; ++i) kill(children[i], SIGKILL);
  for (uint32_t i = 0; i < started; ++i) waitpid(children[i], nullptr, 0);
  return 0;
}
