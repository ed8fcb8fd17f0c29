#include "attach.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "driver.h"
#include "homes.h"
#include "mover.h"
#include "patience.h"
#include "watched.h"
#include "wire.h"

namespace tandem::shim {
namespace {

constexpr size_t kMaxFds = 4;

// One packet and the descriptors that came with it; closes those nobody took.
struct Packet {
  alignas(8) char bytes[wire::kMaxMessageBytes];
  size_t size = 0;
  int fd[kMaxFds] = {-1, -1, -1, -1};
  size_t fd_count = 0;

  Packet() = default;
  Packet(const Packet&) = delete;
  Packet& operator=(const Packet&) = delete;
  ~Packet() {
    for (const int each : fd) {
      if (each >= 0) close(each);
    }
  }

  // The message as a T if it is one: right magic, protocol, type, and at least T's size.
  template <class T>
  [[nodiscard]] const T* as(wire::Type type) const {
    const auto* header = reinterpret_cast<const wire::Header*>(bytes);
    if (size < sizeof(wire::Header) || header->magic != wire::kMagic) return nullptr;
    if (header->version != wire::kProtocolVersion) return nullptr;
    if (header->type != static_cast<uint16_t>(type)) return nullptr;
    if (header->size != size || size < sizeof(T)) return nullptr;
    return reinterpret_cast<const T*>(bytes);
  }

  // For a message that comes with one descriptor; -1 = it came without, as when the job has as many as it
  // may. The caller closes it.
  int take_descriptor() { return fd_count == 1 ? std::exchange(fd[0], -1) : -1; }
};

void take_descriptors(msghdr* message, Packet* packet) {
  for (cmsghdr* part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      if (packet->fd_count < kMaxFds) packet->fd[packet->fd_count++] = fd;
      else close(fd);
    }
  }
}

// > 0 a packet, 0 nothing there, < 0 the connection is gone.
int receive(int socket, Packet* packet) {
  iovec part{packet->bytes, sizeof(packet->bytes)};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
  take_descriptors(&message, packet);
  if (got == 0) return -1;
  if (message.msg_flags & MSG_TRUNC) return -1;  // larger than any message of ours
  packet->size = static_cast<size_t>(got);
  return 1;
}

template <class T>
bool send_message(int socket, const T& message) {
  return send(socket, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof(message));
}

// In a directory anybody can write to, the socket must be ours or root's.
bool is_trustworthy(int socket, const char* path) {
  if (std::strncmp(path, "/tmp/", 5) != 0) return true;
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == 0 || peer.uid == geteuid();
}

int connect_to(const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (!*path || std::strlen(path) >= sizeof(address.sun_path)) return -1;
  std::strcpy(address.sun_path, path);
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return -1;
  // Non-blocking: a daemon whose backlog is full is one to try again later.
  if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      is_trustworthy(socket, path)) {
    return socket;
  }
  close(socket);
  return -1;
}

void* map(int fd, size_t bytes, int protection) {
  struct stat about {};
  // A file shorter than its map would be SIGBUS in the job; sealed ones cannot shrink later.
  if (fd < 0 || fstat(fd, &about) != 0 || static_cast<size_t>(about.st_size) < bytes)
    return nullptr;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK)) return nullptr;
  void* at = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return nullptr;
  madvise(at, bytes, MADV_DONTFORK);  // a child's writes would be taken for ours
  return at;
}

Channel* new_channel() {
  void* at = mmap(nullptr, sizeof(Channel), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                  -1, 0);
  return at == MAP_FAILED ? nullptr : new (at) Channel;
}

bool is_ours(const shm::CommandPage* command, const shm::StatePage* state) {
  return command->header.magic == shm::kCommandMagic &&
         command->header.layout_version == shm::kLayoutVersion &&
         state->header.magic == shm::kStateMagic &&
         state->header.layout_version == shm::kLayoutVersion;
}

Channel* map_channel(const Packet& packet, const wire::Welcome& welcome) {
  if (packet.fd_count != 3 || welcome.layout_version != shm::kLayoutVersion) return nullptr;
  const auto expected = g_clock.is_virtual() ? wire::ClockKind::kSoftGpuVirtual
                                             : wire::ClockKind::kMonotonic;
  if (welcome.clock != static_cast<uint32_t>(expected)) return nullptr;
  const int write = PROT_READ | PROT_WRITE;
  void* command = map(packet.fd[0], shm::kCommandBytes, PROT_READ);
  const bool has_samples = welcome.features & wire::kFeatureSamples;
  const size_t state_bytes = has_samples ? shm::kStateBytes : shm::kStateBytesFirst;
  void* state = map(packet.fd[1], state_bytes, write);
  void* presence = map(packet.fd[2], shm::kPresenceBytes, write);
  Channel* channel = nullptr;
  if (command && state && presence &&
      is_ours(static_cast<shm::CommandPage*>(command), static_cast<shm::StatePage*>(state))) {
    channel = new_channel();
  }
  if (!channel) {
    if (command) munmap(command, shm::kCommandBytes);
    if (state) munmap(state, state_bytes);
    if (presence) munmap(presence, shm::kPresenceBytes);
    return nullptr;
  }
  channel->lay_out(static_cast<shm::CommandPage*>(command), static_cast<shm::StatePage*>(state),
                   static_cast<shm::PresencePage*>(presence), &g_clock);
  channel->features = welcome.features;
  channel->has_samples = has_samples;
  channel->process_id = welcome.process_id;
  channel->job_id = welcome.job_id;
  return channel;
}

using PeerPages = std::atomic<const shm::PresencePage*>[shm::kPresenceMax];

void meet_peer(PeerPages& pages, const Packet& packet, uint32_t index) {
  if (index >= shm::kPresenceMax || packet.fd_count != 1) return;
  const void* page = map(packet.fd[0], shm::kPresenceBytes, PROT_READ);
  if (!page) return;
  // The previous page of that index stays mapped: a launching thread may be reading it.
  pages[index].store(static_cast<const shm::PresencePage*>(page), std::memory_order_release);
}

// True when the packet was about a peer.
bool handle_presence(PeerPages& pages, const Packet& packet) {
  if (const auto* peer = packet.as<wire::Presence>(wire::Type::kPresence)) {
    meet_peer(pages, packet, peer->index);
    return true;
  }
  const auto* gone = packet.as<wire::Presence>(wire::Type::kPresenceGone);
  if (gone && gone->index < shm::kPresenceMax)
    pages[gone->index].store(nullptr, std::memory_order_release);
  return gone != nullptr;
}

// Between two messages the page may have changed for the second: it is one order then, not to be carried out
// twice, or it would be told as ended when the second time begins.
void look_at_target(Channel& channel) {
  const shm::CommandMemory& memory = channel.command->memory;
  const uint32_t number = memory.swap_order.load(std::memory_order_acquire);
  if (number == channel.swap_order) return;
  channel.swap_order = number;
  swap::order(number, memory.resident_target_bytes.load(std::memory_order_relaxed));
}

void handle_swap(Channel& channel, Packet& packet) {
  if (const auto* pool = packet.as<wire::HostPool>(wire::Type::kHostPool)) {
    swap::add_pool(packet.take_descriptor(), pool->bytes);
  } else if (const auto* file = packet.as<wire::HostFile>(wire::Type::kHostFile)) {
    swap::order_to_file(file->order, file->since, file->pool, packet.take_descriptor());
  } else if (const auto* back = packet.as<wire::HostBack>(wire::Type::kHostBack)) {
    swap::order_to_give_back(back->order, back->since, back->pool);
  } else if (packet.as<wire::Swap>(wire::Type::kSwap)) {
    look_at_target(channel);
  }
}

Channel* welcomed(const Packet& packet, const PeerPages& early) {
  const auto* welcome = packet.as<wire::Welcome>(wire::Type::kWelcome);
  Channel* channel = welcome ? map_channel(packet, *welcome) : nullptr;  // REFUSED or garbage
  if (!channel) return nullptr;
  for (uint32_t i = 0; i < shm::kPresenceMax; ++i)
    channel->gate.peers().page[i].store(early[i].load(std::memory_order_relaxed),
                                        std::memory_order_relaxed);
  return channel;
}

Channel* shake_hands(int socket, const wire::Hello& hello, int timeout_ms) {
  if (!send_message(socket, hello)) return nullptr;
  PeerPages early{};  // a peer's presence may overtake the welcome
  for (Patience patience(timeout_ms); patience.wait(socket);) {
    Packet packet;
    const int got = receive(socket, &packet);
    if (got < 0) return nullptr;
    if (got == 0 || handle_presence(early, packet)) continue;
    return welcomed(packet, early);
  }
  return nullptr;
}

}  // namespace

Channel* attach_to_daemon(const Settings& settings, const wire::Hello& hello, int timeout_ms) {
  const int saved = errno;
  const int socket = connect_to(settings.socket_path);
  Channel* channel = socket < 0 ? nullptr : shake_hands(socket, hello, timeout_ms);
  wire::Mapped mapped{};
  mapped.header = {wire::kMagic, wire::kProtocolVersion, static_cast<uint16_t>(wire::Type::kMapped),
                   sizeof(mapped), 0};
  if (channel && send_message(socket, mapped)) {
    channel->socket.adopt(socket);
    channel->observe.store(settings.observe || is_watched(), std::memory_order_relaxed);
  } else {
    channel = nullptr;
    if (socket >= 0) close(socket);
  }
  errno = saved;
  return channel;
}

bool read_messages(Channel& channel) {
  for (;;) {
    const int socket = channel.socket.number();
    if (socket < 0) return false;  // closed by the job
    Packet packet;
    const int got = receive(socket, &packet);
    if (got < 0) return false;
    if (got == 0) return true;
    if (!handle_presence(channel.gate.peers().page, packet)) handle_swap(channel, packet);
  }
}

}  // namespace tandem::shim
