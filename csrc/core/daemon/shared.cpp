#include "daemon/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/futex.h"

namespace tandem::daemon {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr uint64_t kDefaultSegmentNs = 100'000;
constexpr uint64_t kDefaultLingerNs = 300'000;
constexpr uint64_t kDefaultStaleNs = 2'000'000'000;

Failure failed(const char* call) { return {errno, call}; }

// A memfd is created with mode 0777; 0600 keeps other users from reopening it through /proc.
Failure create_memfd(const char* name, size_t bytes, int* fd) {
  *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (*fd < 0) return failed("memfd_create");
  if (fchmod(*fd, S_IRUSR | S_IWUSR) != 0) return failed("fchmod");
  if (ftruncate(*fd, static_cast<off_t>(bytes)) != 0) return failed("ftruncate");
  return {};
}

Failure add_seals(int fd, int seals) {
  return fcntl(fd, F_ADD_SEALS, seals) == 0 ? Failure{} : failed("fcntl(F_ADD_SEALS)");
}

template <typename T>
Failure write_start(int fd, const T& value) {
  const ssize_t written = pwrite(fd, &value, sizeof(value), 0);
  if (written < 0) return failed("pwrite");
  return written == sizeof(value) ? Failure{} : Failure{EIO, "pwrite"};
}

void set_defaults(shm::CommandPage& page) {
  page.gate.flags.store(shm::kFlagHonourPresence | shm::kFlagTelemetry, std::memory_order_relaxed);
  page.gate.job_class.store(static_cast<uint32_t>(shm::JobClass::kNormal),
                            std::memory_order_relaxed);
  page.gate.segment_ns.store(kDefaultSegmentNs, std::memory_order_relaxed);
  page.gate.linger_ns.store(kDefaultLingerNs, std::memory_order_relaxed);
  page.heartbeat.stale_ns.store(kDefaultStaleNs, std::memory_order_relaxed);
  page.memory.limit_bytes.store(shm::kNoLimit, std::memory_order_relaxed);
  page.memory.lease_bytes.store(shm::kNoLimit, std::memory_order_relaxed);
  page.memory.resident_target_bytes.store(shm::kNoLimit, std::memory_order_relaxed);
}

// Stores the gate word with a new epoch, so that waiters look again.
uint32_t next_epoch(std::atomic<uint32_t>* gate, uint32_t bit) {
  const uint32_t epoch = (gate->load(std::memory_order_relaxed) >> 1) + 1;
  const uint32_t changed = (epoch << 1) | bit;
  gate->store(changed, std::memory_order_release);  // pairs with the acquire load before a launch
  futex_wake_all(gate);
  return changed;
}

void close_if_open(int fd) {
  if (fd >= 0) close(fd);
}

}  // namespace

Mapping::~Mapping() {
  if (base_) munmap(base_, bytes_);
}

Failure Mapping::map(int fd, size_t bytes, bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* base = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return failed("mmap");
  base_ = base;
  bytes_ = bytes;
  return {};
}

void Pages::stamp(uint64_t tick_ns) const {
  // Pairs with the acquire load of the shim's staleness check.
  command().heartbeat.tick_ns.store(tick_ns, std::memory_order_release);
}

uint32_t Pages::begin_sample() const {
  shm::CommandGate& gate = command().gate;
  const uint32_t number = gate.sample.load(std::memory_order_relaxed) + 1;
  gate.sample.store(number, std::memory_order_relaxed);
  // Whoever sees the flag should also see the number; otherwise it writes for the previous sample.
  gate.flags.fetch_or(shm::kFlagSample, std::memory_order_release);
  return number;
}

void Pages::end_sample() const {
  command().gate.flags.fetch_and(~shm::kFlagSample, std::memory_order_relaxed);
}

Channel::~Channel() {
  close_if_open(command_fd_);
  close_if_open(state_fd_);
  close_if_open(presence_fd_);
}

std::unique_ptr<Channel> Channel::create(uint64_t process_id, uint64_t job_id, Failure* failure) {
  std::unique_ptr<Channel> channel(new Channel(std::make_shared<Pages>(process_id)));
  *failure = channel->create_command(job_id);
  if (!*failure) *failure = channel->create_state();
  if (!*failure) *failure = channel->create_presence();
  return *failure ? nullptr : std::move(channel);
}

Failure Channel::create_command(uint64_t job_id) {
  if (Failure f = create_memfd("tandem-command", shm::kCommandBytes, &command_fd_)) return f;
  if (Failure f = pages_->command_.map(command_fd_, shm::kCommandBytes, true)) return f;
  shm::CommandPage& page = pages_->command();
  page.header.magic = shm::kCommandMagic;
  page.header.layout_version = shm::kLayoutVersion;
  page.header.page_bytes = shm::kCommandBytes;
  page.header.process_id = pages_->process_id();
  page.header.job_id = job_id;
  set_defaults(page);
  return add_seals(command_fd_, kSizeSeals | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
}

Failure Channel::create_state() {
  if (Failure f = create_memfd("tandem-state", shm::kStateBytes, &state_fd_)) return f;
  const shm::StateHeader header{shm::kStateMagic, shm::kLayoutVersion, shm::kStateBytes, {}};
  if (Failure f = write_start(state_fd_, header)) return f;
  if (Failure f = pages_->state_.map(state_fd_, shm::kStateBytes, false)) return f;
  return add_seals(state_fd_, kSizeSeals | F_SEAL_SEAL);
}

Failure Channel::create_presence() {
  if (Failure f = create_memfd("tandem-presence", shm::kPresenceBytes, &presence_fd_)) return f;
  const uint32_t header[2] = {shm::kPresenceMagic, shm::kLayoutVersion};
  if (Failure f = write_start(presence_fd_, header)) return f;
  if (Failure f = pages_->presence_.map(presence_fd_, shm::kPresenceBytes, false)) return f;
  return add_seals(presence_fd_, kSizeSeals);
}

Failure Channel::seal_presence() {
  const int seals = fcntl(presence_fd_, F_GET_SEALS);
  if (seals < 0) return failed("fcntl(F_GET_SEALS)");
  const int wanted = kSizeSeals | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if ((seals & wanted) == wanted) return {};
  return add_seals(presence_fd_, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
}

uint32_t Channel::set_gate(bool hold) {
  std::atomic<uint32_t>& gate = pages_->command().gate.gate;
  const uint32_t word = gate.load(std::memory_order_relaxed);  // only this side writes it
  const uint32_t bit = hold ? shm::kGateHold : 0;
  if ((word & shm::kGateHold) == bit) return word;
  return next_epoch(&gate, bit);
}

void Channel::set_mark_limit(shm::LimitKind kind, uint64_t number) {
  shm::CommandGate& gate = pages_->command().gate;
  gate.mark_limit.store(shm::mark_limit_of(kind, number), std::memory_order_relaxed);
  next_epoch(&gate.gate, gate.gate.load(std::memory_order_relaxed) & shm::kGateHold);
}

void Channel::set_pause(uint32_t number) {
  pages_->command().gate.pause.store(number, std::memory_order_relaxed);
}

void Channel::set_window(uint32_t segments, uint64_t segment_ns) {
  pages_->command().gate.segment_ns.store(segment_ns, std::memory_order_relaxed);
  pages_->command().gate.window_segments.store(segments, std::memory_order_relaxed);
}

void Channel::set_class(shm::JobClass job_class) {
  pages_->command().gate.job_class.store(static_cast<uint32_t>(job_class),
                                         std::memory_order_relaxed);
}

void Channel::set_linger(uint64_t linger_ns, uint64_t limit_ns) {
  pages_->command().gate.linger_ns.store(linger_ns, std::memory_order_relaxed);
  pages_->command().gate.linger_limit_ns.store(limit_ns, std::memory_order_relaxed);
}

void Channel::set_flags(uint32_t flags) {
  shm::CommandGate& gate = pages_->command().gate;
  // Another thread begins and ends samples.
  uint32_t held = gate.flags.load(std::memory_order_relaxed);
  while (!gate.flags.compare_exchange_weak(held, flags | (held & shm::kFlagSample),
                                           std::memory_order_relaxed)) {
  }
  // Threads at a closed gate check kFlagReleased only when they wake.
  if (flags & shm::kFlagReleased) futex_wake_all(&gate.gate);
}

void Channel::set_presence_mask(uint64_t mask) {
  pages_->command().gate.presence_mask.store(mask, std::memory_order_relaxed);
}

void Channel::set_memory_limit(uint64_t limit_bytes) {
  pages_->command().memory.limit_bytes.store(limit_bytes, std::memory_order_relaxed);
}

void Channel::set_memory_lease(uint64_t lease_bytes) {
  pages_->command().memory.lease_bytes.store(lease_bytes, std::memory_order_relaxed);
}

void Channel::set_memory_wait(uint64_t wait_ns) {
  pages_->command().memory.wait_ns.store(wait_ns, std::memory_order_relaxed);
}

void Channel::set_memory_place(uint64_t ticket, uint32_t round, uint32_t line) {
  shm::CommandMemory& memory = pages_->command().memory;
  // Nobody must take the old ticket's answer for the new one's.
  memory.line_ticket.store(0, std::memory_order_relaxed);
  memory.line.store(line, std::memory_order_release);
  memory.line_ticket.store(ticket, std::memory_order_release);
  memory.line_round.store(round, std::memory_order_release);  // pairs with the waiter's acquire
  futex_wake_all(&memory.line_round);
}

void Channel::set_resident_target(uint64_t bytes, uint32_t order) {
  shm::CommandMemory& memory = pages_->command().memory;
  memory.resident_target_bytes.store(bytes, std::memory_order_relaxed);
  memory.swap_order.store(order, std::memory_order_release);
}

void Channel::set_lane(uint32_t lane) {
  pages_->command().memory.lane.store(lane, std::memory_order_relaxed);
}

void Channel::set_sms(const shm::SmSet& set, uint32_t turn) {
  shm::CommandMemory& memory = pages_->command().memory;
  memory.sm_set.store(shm::word_of(set), std::memory_order_relaxed);
  memory.set_turn.store(turn, std::memory_order_release);
}

void Channel::set_stale(uint64_t stale_ns) {
  pages_->command().heartbeat.stale_ns.store(stale_ns, std::memory_order_relaxed);
}

}  // namespace tandem::daemon
