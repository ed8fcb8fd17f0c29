#include "runtime.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "connection.h"

namespace softgpu {
namespace {

using proto::Header;
using proto::Type;

constexpr uint64_t kPollQuantumNs = 1'000;  // virtual time that the first of several polls lets pass
constexpr long kBatchNs = 20'000;           // real clock: how long a launch may wait for company

Runtime* g_runtime = nullptr;  // replaced only in a forked child, by its single thread

uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Helper threads take no signal of the program; faults of a kernel body must still arrive.
template <class Body>
void spawn(Body body) {
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  std::thread(body).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void before_fork() { runtime().mutex.lock(); }
void after_fork_in_parent() { runtime().mutex.unlock(); }
void after_fork_in_child() { runtime().forget_after_fork(); }

template <class Message>
Message read(const char* from) {
  Message message{};
  Header header;
  memcpy(&header, from, sizeof header);
  memcpy(&message, from, std::min<size_t>(sizeof message, header.size));
  return message;
}

}  // namespace

Runtime& runtime() {
  static Runtime* const first = [] {
    g_runtime = new Runtime;
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    return g_runtime;
  }();
  (void)first;
  return *g_runtime;
}

void Runtime::forget_after_fork() {
  const bool was_started = life != Life::kFresh;
  if (fd_ >= 0) close(fd_);  // else a killed parent would seem to live on in its child
  if (wake_fd_ >= 0) close(wake_fd_);
  g_runtime = new Runtime;  // the old one's mutex and threads are not ours
  if (was_started) g_runtime->life = Life::kForked;
  this_thread() = ThreadState();
}

CUresult Runtime::start(uint32_t flags) {
  const Lock lock(mutex);
  if (life == Life::kReady) return CUDA_SUCCESS;
  if (life == Life::kForked) return CUDA_ERROR_NOT_INITIALIZED;
  if (life == Life::kLost) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  fd_ = connect_to_device(flags, true, &device);
  if (fd_ < 0) return CUDA_ERROR_SYSTEM_NOT_READY;
  life = Life::kReady;
  received_ = 1;  // WELCOME
  last_time_ns_ = device.now_ns;
  if (const char* limit = getenv("TANDEM_SOFTGPU_QUEUE")) {
    queue_limit_ = static_cast<uint32_t>(std::max(1L, strtol(limit, nullptr, 10)));
  }
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  primary.resize(device.device_count);
  primary_references.resize(device.device_count);
  primary_flags.resize(device.device_count);
  outbox_.reserve(proto::kMaxPacketBytes);
  this_thread().known = true;
  ++running_;
  spawn([this, fd = fd_] { receive_loop(fd); });
  spawn([this] { execute_loop(); });
  return CUDA_SUCCESS;
}

uint64_t Runtime::now_ns() const { return is_virtual() ? last_time_ns_ : monotonic_ns(); }

// ---- what leaves

void Runtime::append(const void* message, size_t bytes) {
  if (life != Life::kReady) return;
  if (outbox_.size() + bytes > proto::kMaxPacketBytes) flush();
  const char* begin = static_cast<const char*>(message);
  outbox_.insert(outbox_.end(), begin, begin + bytes);
  idle_due_ = true;
}

void Runtime::flush() {
  if (outbox_.empty() || life != Life::kReady) return;
  ssize_t sent;
  do {
    sent = send(fd_, outbox_.data(), outbox_.size(), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  outbox_.clear();
  flush_armed_ = false;
  if (sent < 0) lose();
}

bool Runtime::ask_memory(Lock& lock, uint64_t bytes, int device_index, proto::MemKind kind,
                         proto::MemReply* reply) {
  const uint64_t request = next_number();
  post(Type::kMemReserve,
       proto::MemReserve{{}, request, bytes, static_cast<uint32_t>(device_index),
                         static_cast<uint32_t>(kind)});
  wait(lock, [&] { return memory_replies_.count(request) != 0; });
  const auto found = memory_replies_.find(request);
  if (found == memory_replies_.end()) return false;
  *reply = found->second;
  memory_replies_.erase(found);
  return true;
}

bool Runtime::ask_memory_info(Lock& lock, int device_index, proto::MemInfoReply* reply) {
  const uint64_t request = next_number();
  post(Type::kMemInfo, proto::MemInfo{{}, request, static_cast<uint32_t>(device_index), 0});
  wait(lock, [&] { return info_replies_.count(request) != 0; });
  const auto found = info_replies_.find(request);
  if (found == info_replies_.end()) return false;
  *reply = found->second;
  info_replies_.erase(found);
  return true;
}

// ---- operations

Op* Runtime::new_op(OpKind kind, Stream* stream) {
  Op* op;
  if (spare_ops_.empty()) {
    op = new Op;
  } else {
    op = spare_ops_.back();
    spare_ops_.pop_back();
  }
  memset(static_cast<void*>(op), 0, offsetof(Op, inline_params));
  op->kind = kind;
  op->stream = stream;
  op->params = op->inline_params;
  op->height = 1;
  return op;
}

bool Runtime::live(uint64_t op) const {
  return op >= first_op_ && op - first_op_ < ops_.size() && ops_[op - first_op_] != nullptr;
}

// The implicit barriers of the legacy default stream, both ways.
void Runtime::order_after_barriers(const Stream* stream, std::vector<uint64_t>* deps) const {
  const Context* context = stream->context;
  if (!stream->legacy) {
    const Stream* legacy = context->legacy;
    if (stream->blocking() && legacy && live(legacy->last_op)) deps->push_back(legacy->last_op);
    return;
  }
  for (const Stream* other : context->streams) {
    if (other != stream && other->blocking() && live(other->last_op)) {
      deps->push_back(other->last_op);
    }
  }
}

uint64_t Runtime::submit(Op* op, std::vector<uint64_t> deps) {
  order_after_barriers(op->stream, &deps);
  while (deps.size() > proto::kMaxDeps) {
    // More than one message can carry: markers in the same stream take the first ones.
    Op* marker = new_op(OpKind::kEvent, op->stream);
    const auto end = deps.begin() + proto::kMaxDeps;
    write_submit(*marker, {deps.begin(), end});
    deps.erase(deps.begin(), end);
  }
  write_submit(*op, deps);
  if (!is_virtual()) {
    if (sent_pending_ == 1) {
      flush();  // the device has nothing else to do
    } else if (!flush_armed_) {
      flush_armed_ = true;
      const uint64_t one = 1;
      (void)!::write(wake_fd_, &one, sizeof one);
    }
  }
  return op->stream->last_op;
}

void Runtime::write_submit(const Op& given, const std::vector<uint64_t>& deps) {
  Op* op = const_cast<Op*>(&given);
  op->id = first_op_ + ops_.size();
  ops_.push_back(op);
  ++sent_pending_;
  Stream* stream = op->stream;
  stream->last_op = op->id;
  ++stream->pending_ops;
  ++stream->context->pending_ops;
  if (op->event) {
    op->event->op = op->id;
    ++op->event->pending_ops;
  }

  proto::Submit message;
  constexpr size_t kFixed = offsetof(proto::Submit, dep);
  memset(static_cast<void*>(&message), 0, kFixed);
  const size_t bytes = kFixed + deps.size() * sizeof deps[0];
  message.header = {static_cast<uint16_t>(Type::kSubmit), static_cast<uint16_t>(bytes), 0};
  message.op = op->id;
  message.context = stream->context->number;
  message.stream = stream->number;
  message.kind = static_cast<uint32_t>(op->kind);
  message.needs_body = op->body != nullptr;
  message.bytes = op->bytes * op->height;
  message.dep_count = static_cast<uint32_t>(deps.size());
  if (!deps.empty()) memcpy(message.dep, deps.data(), deps.size() * sizeof deps[0]);
  if (op->kind == OpKind::kKernel) {
    message.grid_blocks = uint64_t{op->grid[0]} * op->grid[1] * op->grid[2];
    message.block_threads = op->block[0] * op->block[1] * op->block[2];
    const tandem::KernelLaunch launch{{op->grid[0], op->grid[1], op->grid[2]},
                                      {op->block[0], op->block[1], op->block[2]},
                                      op->params,
                                      nullptr};
    op->function->entry->cost(&launch, &message.flops_per_block, &message.bytes_per_block);
    const std::string& name = op->function->name;
    memcpy(message.name, name.data(), std::min<size_t>(name.size(), sizeof message.name - 1));
  }
  append(&message, bytes);
}

void Runtime::wait_for_room(Lock& lock, Context* context) {
  if (context->pending_ops < queue_limit_) return;
  wait(lock, [&] { return context->pending_ops < queue_limit_; });
}

void Runtime::wait_for_ops(Lock& lock, const std::vector<uint64_t>& ops) {
  wait(lock, [&] { return std::none_of(ops.begin(), ops.end(), [&](uint64_t id) { return live(id); }); });
}

std::vector<uint64_t> Runtime::tail_of(const Stream* stream) const {
  std::vector<uint64_t> ops{stream->last_op};
  if (stream->legacy) order_after_barriers(stream, &ops);
  return ops;
}

void Runtime::let_time_pass(Lock& lock, uint64_t op) {
  flush();
  if (!is_virtual()) return;
  // Ever longer steps, or a loop over a long operation would take a million polls. A step ends with
  // the operation, so the answer does not come late.
  ThreadState& thread = this_thread();
  if (thread.polled_op != op) thread.polled_since_ns = last_time_ns_;
  thread.polled_op = op;
  const uint64_t step_ns = (last_time_ns_ - thread.polled_since_ns) / 8;
  const uint64_t deadline_ns = last_time_ns_ + std::max(kPollQuantumNs, step_ns);
  wait(lock, [&] { return !live(op); }, deadline_ns);
}

// ---- who runs, who waits

void Runtime::thread_begins(Lock& lock) {
  ++running_;
  this_thread().known = true;
  this_thread().outside = false;
  if (!is_virtual() || life != Life::kReady) return;
  // The device may believe that this process is idle: any message makes it busy again, and the
  // answer to this one is the present time.
  const proto::Header sync{static_cast<uint16_t>(Type::kSyncTime), sizeof sync, 0};
  append(&sync, sizeof sync);
  const uint64_t heard = times_heard_;
  wait(lock, [&] { return times_heard_ > heard; });
}

void Runtime::thread_ends() { settle_after(-1); }

void Runtime::settle_after(int change) {
  running_ += change;
  if (running_ == 0) say_idle_if_settled();
}

void Runtime::say_idle_if_settled() {
  if (running_ != 0 || !is_virtual() || life != Life::kReady) return;
  uint64_t deadline_ns = proto::kNever;
  for (const Waiter* waiter : waiters_) deadline_ns = std::min(deadline_ns, waiter->deadline_ns);
  if (!idle_due_ && deadline_ns == idle_deadline_ns_) return;
  post(Type::kIdle, proto::Idle{{}, received_, deadline_ns});
  flush();
  idle_due_ = false;
  idle_deadline_ns_ = deadline_ns;
}

void Runtime::wait_erased(Lock& lock, bool (*ready)(void*), void* argument, uint64_t deadline_ns) {
  if (life != Life::kReady || ready(argument)) return;
  Waiter self{ready, argument, deadline_ns, false, {}};
  waiters_.push_back(&self);
  idle_due_ = true;
  flush();
  settle_after(-1);
  if (life != Life::kReady) wake_satisfied();
  while (!self.woken) {
    if (is_virtual() || deadline_ns == proto::kNever) {
      self.changed.wait(lock);
      continue;
    }
    const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline_ns)};
    if (self.changed.wait_until(lock, until) == std::cv_status::timeout && !self.woken) {
      self.woken = true;
      ++running_;
    }
  }
  waiters_.erase(std::find(waiters_.begin(), waiters_.end(), &self));
}

void Runtime::wake_satisfied() {
  const uint64_t now = is_virtual() ? last_time_ns_ : 0;  // real deadlines are the waiters' own
  for (Waiter* waiter : waiters_) {
    if (waiter->woken) continue;
    if (life == Life::kReady && waiter->deadline_ns > now && !waiter->ready(waiter->argument)) {
      continue;
    }
    waiter->woken = true;
    waiter->deadline_ns = proto::kNever;
    ++running_;
    waiter->changed.notify_one();
  }
}

// ---- what arrives

void Runtime::receive_loop(int fd) {
  std::vector<char> packet(proto::kMaxPacketBytes);
  pollfd fds[2] = {{fd, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
  bool batch_open = false;
  for (;;) {
    const timespec batch{0, kBatchNs};
    if (ppoll(fds, 2, batch_open ? &batch : nullptr, nullptr) < 0 && errno != EINTR) break;
    if (batch_open) {
      const Lock lock(mutex);
      flush();
      batch_open = false;
    }
    if (fds[1].revents) {
      uint64_t count;
      (void)!::read(wake_fd_, &count, sizeof count);
      batch_open = true;
    }
    if (!fds[0].revents) continue;
    const ssize_t got = recv(fd, packet.data(), packet.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    handle_packet(packet.data(), static_cast<size_t>(got));
  }
  const Lock lock(mutex);
  lose();
}

void Runtime::handle_packet(const char* packet, size_t bytes) {
  Lock lock(mutex);
  ++received_;
  idle_due_ = true;
  for (size_t at = 0; at + sizeof(Header) <= bytes;) {
    Header header;
    memcpy(&header, packet + at, sizeof header);
    if (header.size < sizeof header || header.size > bytes - at) break;
    handle(header, packet + at);
    at += header.size;
  }
  wake_satisfied();
  if (is_virtual()) {
    execute_here(lock);
  } else {
    flush();
  }
  say_idle_if_settled();
}

void Runtime::handle(const Header& header, const char* message) {
  switch (static_cast<Type>(header.type)) {
    case Type::kStart: return on_start(read<proto::Start>(message));
    case Type::kDone: return on_done(read<proto::Done>(message));
    case Type::kTime:
      ++times_heard_;
      last_time_ns_ = std::max(last_time_ns_, read<proto::Time>(message).now_ns);
      return;
    case Type::kMemReply: {
      const auto reply = read<proto::MemReply>(message);
      memory_replies_[reply.request] = reply;
      return;
    }
    case Type::kMemInfoReply: {
      const auto reply = read<proto::MemInfoReply>(message);
      info_replies_[reply.request] = reply;
      return;
    }
    case Type::kFault: {
      const auto fault = read<proto::Fault>(message);
      for (const void* known : contexts) {
        auto* context = static_cast<Context*>(const_cast<void*>(known));
        if (context->number == fault.context) context->error = static_cast<CUresult>(fault.status);
      }
      return;
    }
    default: return;
  }
}

void Runtime::on_start(const proto::Start& start) {
  last_time_ns_ = std::max(last_time_ns_, start.now_ns);
  if (!live(start.op)) return;
  ++running_;  // until its result is posted
  Op* op = ops_[start.op - first_op_];
  executable_.push_back(op);
  if (!is_virtual() || op->kind == OpKind::kHostFunc) executable_changed_.notify_one();
}

void Runtime::on_done(const proto::Done& done) {
  last_time_ns_ = std::max(last_time_ns_, done.end_ns);
  if (!live(done.op)) return;
  Op* op = ops_[done.op - first_op_];
  Stream* stream = op->stream;
  if (done.status != 0 && stream->context->error == CUDA_SUCCESS) {
    stream->context->error = static_cast<CUresult>(done.status);
  }
  if (op->event) {
    if (op->event->op == op->id) op->event->end_ns = done.end_ns;
    if (--op->event->pending_ops == 0 && op->event->destroyed) delete op->event;
  }
  --sent_pending_;
  --stream->context->pending_ops;
  if (--stream->pending_ops == 0 && stream->destroyed) delete stream;
  ops_[done.op - first_op_] = nullptr;
  while (!ops_.empty() && !ops_.front()) {
    ops_.pop_front();
    ++first_op_;
  }
  // A cancelled operation may still be with the executor, which then gives it back.
  if (op->unsatisfied || op->body == nullptr) return release(op);
  const auto queued = std::find(executable_.begin(), executable_.end(), op);
  if (queued != executable_.end()) {
    executable_.erase(queued);
    --running_;
    return release(op);
  }
  if (std::find(executing_.begin(), executing_.end(), op) == executing_.end()) release(op);
}

void Runtime::release(Op* op) {
  free(op->heap);
  op->heap = nullptr;
  spare_ops_.push_back(op);
}

// Bodies run on one thread, the kernels' static __shared__ relies on it: on the real clock the
// executor; on the virtual one, where the device waits for this process anyway, the thread that
// received START, without a hand-over. Host functions are the executor's on both: they may block.
Op* Runtime::take_executable(bool by_executor) {
  const bool everything = by_executor && !is_virtual();
  const auto mine = [&](const Op* op) {
    return everything || (op->kind == OpKind::kHostFunc) == by_executor;
  };
  const auto found = std::find_if(executable_.begin(), executable_.end(), mine);
  if (found == executable_.end()) return nullptr;
  Op* op = *found;
  executable_.erase(found);
  return op;
}

void Runtime::execute_loop() {
  t_in_body = true;
  Lock lock(mutex);
  for (;;) {
    Op* op = nullptr;
    executable_changed_.wait(lock, [&] { return (op = take_executable(true)) != nullptr; });
    execute(lock, op);
  }
}

void Runtime::execute_here(Lock& lock) {
  t_in_body = true;
  while (Op* op = take_executable(false)) execute(lock, op);
  t_in_body = false;
}

void Runtime::execute(Lock& lock, Op* op) {
  const uint64_t id = op->id;
  executing_.push_back(op);
  op->unsatisfied = false;
  lock.unlock();
  const CUresult status = op->body(*op);
  lock.lock();
  executing_.erase(std::find(executing_.begin(), executing_.end(), op));
  post(Type::kBody,
       proto::Body{{}, id, static_cast<uint32_t>(status), 0, op->unsatisfied ? uint64_t{1} : 0});
  if (!live(id)) release(op);
  if (!is_virtual()) flush();
  settle_after(-1);
}

// The device process is gone, or ended us. Nobody may wait for it any longer.
void Runtime::lose() {
  if (life != Life::kReady) return;
  life = Life::kLost;
  wake_satisfied();
}

// ---- threads and calls

thread_local bool t_in_body = false;

ThreadState& this_thread() {
  static thread_local ThreadState state;
  return state;
}

ThreadState::~ThreadState() {
  if (!known) return;
  Runtime& rt = runtime();
  const Lock lock(rt.mutex);
  known = false;
  if (!outside) rt.thread_ends();
}

Call::Call(Need need) : rt(runtime()), lock(rt.mutex), error(CUDA_SUCCESS) {
  if (t_in_body) {
    error = CUDA_ERROR_NOT_PERMITTED;  // host functions must not call the driver
    return;
  }
  if (rt.life != Life::kReady) {
    error = rt.life == Life::kLost ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_NOT_INITIALIZED;
    return;
  }
  ThreadState& thread = this_thread();
  if (!thread.known || thread.outside) rt.thread_begins(lock);
  if (need == kNothing) return;
  if (thread.stack.empty() || !thread.stack.back()) {
    error = CUDA_ERROR_INVALID_CONTEXT;
    return;
  }
  context = thread.stack.back();
  error = context->alive ? context->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

Range* find_range(Runtime& rt, uintptr_t address, size_t bytes) {
  auto next = rt.ranges.upper_bound(address);
  if (next == rt.ranges.begin()) return nullptr;
  Range& range = (--next)->second;
  const size_t offset = address - range.begin;
  if (offset >= range.bytes || bytes > range.bytes - offset) return nullptr;
  return &range;
}

}  // namespace softgpu
