#include "attach.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "berths.h"
#include "driver.h"
#include "homes.h"
#include "log.h"
#include "mover.h"
#include "patience.h"
#include "watched.h"
#include "wire.h"

namespace tandem::shim {
namespace {

constexpr size_t kMaxFds = 4;

// One packet and the descriptors that came with it; closes those that nobody took.
struct Packet {
  alignas(8) char bytes[wire::kMaxMessageBytes];
  size_t size = 0;
  int fd[kMaxFds] = {-1, -1, -1, -1};
  size_t fd_count = 0;
  bool lacks_fds = false;  // more arrived than this process may have

  Packet() = default;
  Packet(const Packet&) = delete;
  Packet& operator=(const Packet&) = delete;
  ~Packet() {
    for (const int each : fd) {
      if (each >= 0) close(each);
    }
  }

  // The message as a T if it is one: right magic, protocol and type, and at least `least` bytes.
  // That is T's size, except for a message that has grown over time.
  template <class T>
  [[nodiscard]] const T* as(wire::Type type, size_t least = sizeof(T)) const {
    const auto* header = reinterpret_cast<const wire::Header*>(bytes);
    if (size < sizeof(wire::Header) || header->magic != wire::kMagic) return nullptr;
    if (header->version != wire::kProtocolVersion) return nullptr;
    if (header->type != static_cast<uint16_t>(type)) return nullptr;
    if (header->size != size || size < least) return nullptr;
    return reinterpret_cast<const T*>(bytes);
  }

  // For a message that comes with one descriptor; -1 = it came without, for example because the job
  // has reached its limit of descriptors. The caller closes it.
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

// > 0: a packet; 0: nothing there; < 0: the connection is gone.
int receive(int socket, Packet* packet) {
  iovec part{packet->bytes, sizeof(packet->bytes)};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  constexpr int kFlags = MSG_DONTWAIT | MSG_CMSG_CLOEXEC;
  ssize_t got = recvmsg(socket, &message, kFlags);
  // A daemon that hung up without reading our message causes this error; what it sent itself is
  // still to be read.
  if (got < 0 && errno == ECONNRESET) got = recvmsg(socket, &message, kFlags);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
  take_descriptors(&message, packet);
  packet->lacks_fds = message.msg_flags & MSG_CTRUNC;
  if (got == 0) return -1;
  if (message.msg_flags & MSG_TRUNC) return -1;  // larger than any message of the protocol
  packet->size = static_cast<size_t>(got);
  return 1;
}

template <class T>
bool send_message(int socket, const T& message) {
  return send(socket, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof(message));
}

// In a directory that anybody can write to, the socket must belong to this user or root.
bool is_trustworthy(int socket, const char* path) {
  if (std::strncmp(path, "/tmp/", 5) != 0) return true;
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  if (peer.uid == 0 || peer.uid == geteuid()) return true;
  say_once("daemon", path, "belongs to another user, and is not trusted in /tmp; running unshared");
  return false;
}

// Says why limits do not hold: with a few files fewer open, the process would be managed.
void say_no_descriptors() {
  say_once(
      "running unshared: this process has no descriptors left for the daemon's pages (ulimit -n)");
}

int connect_to(const char* path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (!*path || std::strlen(path) >= sizeof(address.sun_path)) return -1;
  std::strcpy(address.sun_path, path);
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) {
    if (access(path, F_OK) == 0) say_no_descriptors();
    return -1;
  }
  // Non-blocking: a daemon whose backlog is full is to be tried again later.
  if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      is_trustworthy(socket, path)) {
    return socket;
  }
  close(socket);
  return -1;
}

bool is_ours(const shm::CommandPage* command, const shm::StatePage* state) {
  return command->header.magic == shm::kCommandMagic &&
         command->header.layout_version == shm::kLayoutVersion &&
         state->header.magic == shm::kStateMagic &&
         state->header.layout_version == shm::kLayoutVersion;
}

Channel* map_channel(const Packet& packet, const wire::Welcome& welcome) {
  if (packet.fd_count != 3 || welcome.layout_version != shm::kLayoutVersion) return nullptr;
  const auto expected =
      g_clock.is_virtual() ? wire::ClockKind::kSoftGpuVirtual : wire::ClockKind::kMonotonic;
  if (welcome.clock != static_cast<uint32_t>(expected)) return nullptr;
  const bool has_samples = welcome.features & wire::kFeatureSamples;
  const size_t state_bytes = has_samples ? shm::kStateBytes : shm::kStateBytesFirst;
  berths::Maps maps;
  if (!berths::map_attachment(packet.fd, state_bytes, &maps)) return nullptr;
  Channel* channel = is_ours(maps.command, maps.state) ? berths::make_channel() : nullptr;
  if (!channel) return nullptr;
  channel->lay_out(maps.command, maps.state, maps.presence, &g_clock);
  channel->features = welcome.features;
  channel->has_samples = has_samples;
  channel->process_id = welcome.process_id;
  channel->job_id = welcome.job_id;
  return channel;
}

using PeerPages = std::atomic<const shm::PresencePage*>[shm::kPresenceMax];

void meet_peer(PeerPages& pages, const Packet& packet, uint32_t index) {
  if (index >= shm::kPresenceMax || packet.fd_count != 1) return;
  if (const shm::PresencePage* page = berths::map_peer(index, packet.fd[0]))
    pages[index].store(page, std::memory_order_release);
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

// When the first of two messages is read, the page may already hold the second one's order. Both
// are then one order, which must not run twice: otherwise it would be reported as ended when the
// second run begins.
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

void tell_why(const Packet& packet) {
  // Older daemons have less room for the reason.
  constexpr size_t kReasonAt = offsetof(wire::Refused, reason);
  const auto* refused = packet.as<wire::Refused>(wire::Type::kRefused, kReasonAt);
  if (!refused || refused->code == static_cast<uint32_t>(wire::RefusalCode::kShuttingDown)) return;
  char reason[wire::kReasonBytes] = {};
  std::memcpy(reason, refused->reason, std::min(sizeof(reason) - 1, packet.size - kReasonAt));
  say_once("running unshared, the daemon refuses this process", reason);
}

Attached answered(const Packet& packet, const PeerPages& early) {
  tell_why(packet);
  const auto* welcome = packet.as<wire::Welcome>(wire::Type::kWelcome);
  if (packet.lacks_fds) say_no_descriptors();
  Channel* channel = welcome ? map_channel(packet, *welcome) : nullptr;
  if (!channel) return {Attachment::kTurnedAway};
  for (uint32_t i = 0; i < shm::kPresenceMax; ++i)
    channel->gate.peers().page[i].store(early[i].load(std::memory_order_relaxed),
                                        std::memory_order_relaxed);
  return {Attachment::kMade, channel};
}

Attached shake_hands(int socket, const wire::Hello& hello, int timeout_ms) {
  // A daemon that has already closed the connection may have said why, so it does not matter
  // whether this arrives.
  send_message(socket, hello);
  PeerPages early{};  // a peer's presence may arrive before the welcome
  for (Patience patience(timeout_ms); patience.wait(socket);) {
    Packet packet;
    const int got = receive(socket, &packet);
    if (got < 0) return {Attachment::kTurnedAway};
    if (got == 0 || handle_presence(early, packet)) continue;
    return answered(packet, early);
  }
  return {};
}

}  // namespace

Attached attach_to_daemon(const Settings& settings, const wire::Hello& hello, int timeout_ms) {
  const int saved = errno;
  const int socket = connect_to(settings.socket_path);
  Attached attached = socket < 0 ? Attached{} : shake_hands(socket, hello, timeout_ms);
  Channel* channel = attached.channel;
  wire::Mapped mapped{};
  mapped.header = {wire::kMagic, wire::kProtocolVersion, static_cast<uint16_t>(wire::Type::kMapped),
                   sizeof(mapped), 0};
  if (channel && send_message(socket, mapped)) {
    berths::keep();
    channel->socket.adopt(socket);
    channel->observe.store(settings.observe || is_watched(), std::memory_order_relaxed);
  } else {
    if (channel) attached = {};  // it went meanwhile
    if (socket >= 0) close(socket);
  }
  errno = saved;
  return attached;
}

bool read_messages(Channel& channel, bool* any) {
  for (;;) {
    const int socket = channel.socket.number();
    if (socket < 0) return false;  // closed by the job
    Packet packet;
    const int got = receive(socket, &packet);
    if (got < 0) return false;
    if (got == 0) return true;
    *any = true;
    if (!handle_presence(channel.gate.peers().page, packet)) handle_swap(channel, packet);
  }
}

}  // namespace tandem::shim
