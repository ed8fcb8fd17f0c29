#include "server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>

#include "clock.h"

namespace tandem::softgpu {
namespace {

// Spin this long before a due time: a sleep may overshoot by that much.
constexpr uint64_t kSpinNs = 120'000;
// For the first client, which is still starting up.
constexpr uint64_t kStartGraceNs = 10'000'000'000;
// Last line of a timeline that could not be written to its end; the client library knows it too.
constexpr char kCutShort[] = R"({"incomplete":true})";
constexpr uint64_t kHurriedStartGraceNs = 1'000'000'000;
constexpr size_t kMaxUnsentBytes = 8 * 1024 * 1024;
constexpr int kPacketsPerTurn = 64;  // per client, before the others are served
constexpr uint32_t kListenerKey = 0;
// For the process's own files, and for telling a client that it is one too many.
constexpr size_t kSpareDescriptors = 32;

size_t most_connections() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return 256;
  const auto most = static_cast<size_t>(std::min<rlim_t>(files.rlim_cur, 1 << 20));
  return most > kSpareDescriptors ? most - kSpareDescriptors : 1;
}

volatile std::sig_atomic_t g_stop = 0;
void ask_to_stop(int) { g_stop = 1; }

// A process wants to start a device with other settings here: do not linger for the next client.
volatile std::sig_atomic_t g_hurry = 0;
void ask_to_hurry(int) { g_hurry = 1; }

void watch_signals() {
  struct sigaction action{};
  action.sa_handler = ask_to_stop;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  action.sa_handler = ask_to_hurry;
  sigaction(SIGUSR1, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a timeline that may not grow further: write() reports it
}

void add_to_poll(int poll, int fd, uint32_t key) {
  epoll_event event{};
  event.events = key == kListenerKey ? EPOLLIN : EPOLLIN | EPOLLOUT | EPOLLRDHUP;
  if (key != kListenerKey) event.events |= EPOLLET;
  event.data.u32 = key;
  epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
}

}  // namespace

Server::Server(const Settings& settings, UniqueFd listener, UniqueFd timeline)
    : engine_(settings, real_now_ns()),
      listener_(std::move(listener)),
      timeline_(std::move(timeline)),
      poll_(epoll_create1(EPOLL_CLOEXEC)),
      linger_ns_(settings.linger_ms * 1'000'000),
      serves_all_(settings.serves_all),
      unleased_since_ns_(real_now_ns()) {
  add_to_poll(poll_.get(), listener_.get(), kListenerKey);
}

void Server::run() {
  watch_signals();
  while (!g_stop && wait_and_serve()) {
  }
  perform();
}

bool Server::wait_and_serve() {
  const int64_t sleep_ns = time_to_sleep_ns();
  if (sleep_ns > 0) {
    // poll(2) on the epoll descriptor, because epoll_wait has only millisecond resolution.
    pollfd ready{poll_.get(), POLLIN, 0};
    const timespec timeout{sleep_ns / 1'000'000'000, sleep_ns % 1'000'000'000};
    ppoll(&ready, 1, &timeout, nullptr);
  }
  epoll_event events[64];
  const int count = epoll_wait(poll_.get(), events, 64, 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.u32 == kListenerKey) {
      accept_all();
    } else {
      serve(events[i].data.u32, events[i].events);
    }
  }
  if (engine_.next_wake_real_ns() <= real_now_ns()) engine_.advance(real_now_ns());
  perform();
  note_leases();
  return !should_end();
}

int64_t Server::time_to_sleep_ns() const {
  if (!broken_.empty()) return 0;
  constexpr uint64_t kLongestNs = 3'600'000'000'000;
  const uint64_t now_ns = real_now_ns();
  uint64_t until_ns = now_ns + kLongestNs;
  const uint64_t wake_ns = engine_.next_wake_real_ns();
  if (wake_ns != kNever) until_ns = std::min(until_ns, wake_ns - std::min(wake_ns, kSpinNs));
  if (engine_.lease_count() == 0) {
    const uint64_t grace_ns = ever_leased_ ? linger_ns_ : std::max(linger_ns_, kStartGraceNs);
    until_ns = std::min(until_ns, unleased_since_ns_ + grace_ns);
  }
  return until_ns > now_ns ? static_cast<int64_t>(until_ns - now_ns) : 0;
}

void Server::note_leases() {
  const bool leased = engine_.lease_count() > 0;
  ever_leased_ = ever_leased_ || leased;
  if (leased) unleased_since_ns_ = real_now_ns();
}

bool Server::should_end() {
  if (engine_.lease_count() > 0) {
    g_hurry = 0;  // it is meant for a device without clients
    return false;
  }
  uint64_t grace_ns = ever_leased_ ? linger_ns_ : std::max(linger_ns_, kStartGraceNs);
  if (g_hurry) grace_ns = ever_leased_ ? 0 : std::min(grace_ns, kHurriedStartGraceNs);
  if (real_now_ns() < unleased_since_ns_ + grace_ns) return false;
  const size_t before = connections_.size();
  accept_all();  // a client that came at the last moment is still welcome
  if (connections_.size() == before) return true;
  unleased_since_ns_ = real_now_ns();
  return false;
}

void Server::accept_all() {
  for (;;) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && errno == EINTR) continue;
    if (!socket) return;
    accept_one(std::move(socket));
  }
}

void Server::accept_one(UniqueFd socket) {
  if (connections_.size() >= most_connections()) {
    std::fprintf(stderr,
                 "refused a client: %zu are connected already, as many as ulimit -n allows\n",
                 connections_.size());
    return;
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
  const uint32_t uid = peer.uid == geteuid() ? 0 : peer.uid;
  if (uid != 0 && !serves_all_) {
    std::fprintf(stderr, "refused pid %d of uid %u: this device belongs to uid %u\n", peer.pid,
                 peer.uid, geteuid());
    return;
  }
  const uint32_t number = engine_.open(peer.pid, real_now_ns(), uid);
  add_to_poll(poll_.get(), socket.get(), number);
  Connection& connection = connections_[number];
  connection.socket = std::move(socket);
  connection.number = number;
  serve(number, EPOLLIN);  // edge-triggered: what came before the registration is not reported
}

void Server::serve(uint32_t number, uint32_t events) {
  const auto found = connections_.find(number);
  if (found == connections_.end()) return;
  Connection* connection = &found->second;
  if (events & EPOLLOUT) send_unsent(connection);
  if (!read_packets(connection)) broken_.push_back(number);
}

// Returns false when the peer is gone.
bool Server::read_packets(Connection* connection) {
  alignas(8) static uint8_t packet[kMaxPacketBytes + 8];
  for (int i = 0; i < kPacketsPerTurn; ++i) {
    const ssize_t bytes = recv(connection->socket.get(), packet, sizeof packet, 0);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return errno == EAGAIN;
    if (bytes == 0) return false;
    engine_.handle(connection->number, packet, static_cast<size_t>(bytes), real_now_ns());
  }
  epoll_event again{};
  again.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  again.data.u32 = connection->number;
  // Report the rest once more.
  epoll_ctl(poll_.get(), EPOLL_CTL_MOD, connection->socket.get(), &again);
  return true;
}

// Does what the engine asks for, until it asks for nothing more. The timeline is written first: a
// client that hears of the end of an operation may read about it there.
void Server::perform() {
  for (;;) {
    Output output = engine_.take_output();
    if (!output.timeline.empty()) write_timeline(output.timeline);
    for (const std::string& line : output.log) std::fprintf(stderr, "%s\n", line.c_str());
    for (Output::Packet& packet : output.packets) {
      const auto found = connections_.find(packet.connection);
      if (found != connections_.end()) send(&found->second, std::move(packet.bytes));
    }
    broken_.insert(broken_.end(), output.to_close.begin(), output.to_close.end());
    if (broken_.empty()) return;
    while (!broken_.empty()) {
      const uint32_t number = broken_.front();
      broken_.pop_front();
      drop(number);
    }
  }
}

// The length of the last line in the first `bytes` bytes of `text`, which are whole lines.
static size_t last_line_bytes(const std::string& text, size_t bytes) {
  return bytes < 2 ? bytes : bytes - (text.rfind('\n', bytes - 2) + 1);
}

void Server::write_timeline(const std::string& text) {
  if (!timeline_) return;
  for (size_t at = 0; at < text.size();) {
    const ssize_t wrote = write(timeline_.get(), text.data() + at, text.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return end_timeline(text.substr(0, at));
    at += static_cast<size_t>(wrote);
  }
  timeline_bytes_ += text.size();
  last_line_bytes_ = last_line_bytes(text, text.size());
}

// The disk is full, or the file has reached its maximum size. `written` is the part of the last
// text that still got there.
void Server::end_timeline(const std::string& written) {
  std::perror("the timeline is incomplete from here on, continuing without it");
  const size_t lines = written.rfind('\n') + 1;  // npos + 1 is 0
  const size_t last = lines > 0 ? last_line_bytes(written, lines) : last_line_bytes_;
  const auto whole = static_cast<off_t>(timeline_bytes_ + lines);
  (void)!ftruncate(timeline_.get(), whole);  // fails for /dev/full, which is fine
  // Say so in the file too, by overwriting its last line: there is room for that on any disk.
  if (last >= sizeof kCutShort &&
      lseek(timeline_.get(), whole - static_cast<off_t>(last), SEEK_SET) >= 0) {
    const std::string line = kCutShort + std::string(last - sizeof kCutShort, ' ') + '\n';
    (void)!write(timeline_.get(), line.data(), line.size());
  }
  timeline_ = UniqueFd();
  engine_.end_timeline();
}

void Server::send(Connection* connection, Bytes packet) {
  if (connection->closing) return;
  connection->unsent_bytes += packet.size();
  connection->unsent.push_back(std::move(packet));
  send_unsent(connection);
  if (connection->unsent_bytes <= kMaxUnsentBytes) return;
  std::fprintf(stderr, "client connection %u does not read its packets, disconnecting it\n",
               connection->number);
  connection->closing = true;
  broken_.push_back(connection->number);
}

void Server::send_unsent(Connection* connection) {
  while (!connection->unsent.empty()) {
    const Bytes& packet = connection->unsent.front();
    const ssize_t sent =
        ::send(connection->socket.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return;  // full: EPOLLOUT follows; broken: reading will report it
    connection->unsent_bytes -= packet.size();
    connection->unsent.pop_front();
  }
}

void Server::drop(uint32_t number) {
  if (connections_.erase(number) > 0) engine_.close(number, real_now_ns());
}

}  // namespace tandem::softgpu
