// Attaches a process by the protocol of csrc/core/wire.h, as the shim speaks it: HELLO, WELCOME
// with three descriptors, maps, MAPPED. For measurements that need no CUDA.
#pragma once

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "shm_layout.h"
#include "wire.h"

namespace bench {

using namespace tandem;

inline int connect_to(const char* path) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  // On a unix socket, connect fails with EAGAIN when the backlog is full: try again, as the shim
  // does.
  for (int tries = 0; tries < 2000; ++tries) {
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
    if (errno != EAGAIN && errno != EINTR) break;
    usleep(1000);
  }
  close(fd);
  return -1;
}

inline wire::Hello hello(const char* name) {
  wire::Hello message{};
  message.header = {wire::kMagic, wire::kProtocolVersion, static_cast<uint16_t>(wire::Type::kHello),
                    sizeof message, 0};
  message.layout_min = message.layout_max = shm::kLayoutVersion;
  message.shim_version = 1 << 8;
  message.request.memory_bytes = message.request.memory_min_bytes = shm::kNoLimit;
  strncpy(message.request.name, name, sizeof message.request.name - 1);
  return message;
}

inline bool receive_welcome(int fd, int (&fds)[3]) {
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

// Returns the state page, mapped for writing; null if attaching failed. The connection, which is
// the lease, stays open.
inline shm::StatePage* attach(const char* path, const char* name) {
  const int fd = connect_to(path);
  if (fd < 0) return nullptr;
  const wire::Hello message = hello(name);
  if (send(fd, &message, sizeof message, MSG_NOSIGNAL) != sizeof message) return nullptr;
  int fds[3];
  if (!receive_welcome(fd, fds)) return nullptr;
  const void* command = mmap(nullptr, shm::kCommandBytes, PROT_READ, MAP_SHARED, fds[0], 0);
  void* state = mmap(nullptr, shm::kStateBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
  const void* presence =
      mmap(nullptr, shm::kPresenceBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[2], 0);
  if (command == MAP_FAILED || state == MAP_FAILED || presence == MAP_FAILED) return nullptr;
  const wire::Mapped mapped{{wire::kMagic, wire::kProtocolVersion,
                             static_cast<uint16_t>(wire::Type::kMapped), sizeof mapped, 0}};
  const bool told = send(fd, &mapped, sizeof mapped, MSG_NOSIGNAL) == sizeof mapped;
  return told ? static_cast<shm::StatePage*>(state) : nullptr;
}

}  // namespace bench
