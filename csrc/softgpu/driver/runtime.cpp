#include "runtime.h"

#include "ptx/print.h"

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
#include <iterator>
#include <new>
#include <thread>

#include "capture.h"
#include "connection.h"
#include "green_context.h"
#include "visible_devices.h"

namespace softgpu {
namespace {

using proto::Type;

// Virtual time that the first of several polls lets pass.
constexpr uint64_t kPollQuantumNs = 1'000;

constexpr std::chrono::milliseconds kNap{proto::kObserverNapMs};

Runtime* g_runtime = nullptr;  // replaced only in a forked child, by its only thread

uint64_t monotonic_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Helper threads take no signals of the program, but faults of a kernel body must still arrive.
template <class Body>
void spawn(Body body) {
  sigset_t blocked, before;
  sigfillset(&blocked);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_SETMASK, &blocked, &before);
  std::thread(body).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// What the device has to know about the work.
void describe(const Work& work, proto::Submit* message) {
  message->kind = static_cast<uint32_t>(work.kind);
  message->needs_body = work.body != nullptr;
  message->bytes = work.total_bytes();
  if (work.event && work.event->shared) {
    message->grid_blocks = proto::kSharedEventBit | work.event->shared;
  }
  if (work.kind != OpKind::kKernel) return;
  message->grid_blocks = uint64_t{work.grid[0]} * work.grid[1] * work.grid[2];
  message->block_threads = work.block[0] * work.block[1] * work.block[2];
  tandem::KernelLaunch launch{};
  std::copy(work.grid, work.grid + 3, launch.grid);
  std::copy(work.block, work.block + 3, launch.block);
  launch.params = work.payload.data();
  work.function->entry->cost(&launch, &message->flops_per_block, &message->bytes_per_block);
  if (work.function->ptx && work.body) message->needs_body = proto::kBodyTellsCost;
  message->blocks_per_sm = work.blocks_per_sm;
  message->least_sms = work.least_sms;
  if (work.own_priority) {
    message->flags |= proto::kOwnPriority;
    message->priority = work.priority;
  }
  const std::string& name = work.function->name;
  memcpy(message->name, name.data(), std::min<size_t>(name.size(), sizeof message->name - 1));
}

void before_fork() { runtime().mutex.lock(); }
void after_fork_in_parent() { runtime().mutex.unlock(); }
void after_fork_in_child() { runtime().forget_after_fork(); }

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
  if (fd_ >= 0) close(fd_);  // otherwise a killed parent would seem to live on in its child
  if (wake_fd_ >= 0) close(wake_fd_);
  if (mps.control_fd >= 0) close(mps.control_fd);
  g_runtime = new Runtime;  // the old one's mutex and threads are not usable here
  if (was_started) g_runtime->life = Life::kForked;
  this_thread() = ThreadState();
}

CUresult Runtime::start(uint32_t flags) {
  const Lock lock(mutex);
  if (life == Life::kReady) return CUDA_SUCCESS;
  if (life == Life::kForked) return CUDA_ERROR_NOT_INITIALIZED;
  if (life == Life::kLost) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  if (const CUresult bad = look_for_mps(&mps)) return bad;
  fd_ = connect_to_device(flags, true, &device);
  if (fd_ < 0) return CUDA_ERROR_SYSTEM_NOT_READY;
  received_ = 1;  // WELCOME
  if (mps.member) keep_devices(mps.devices, &device);
  show_visible_devices(getenv("CUDA_VISIBLE_DEVICES"), &device);
  if (device.device_count == 0) return leave_after(CUDA_ERROR_NO_DEVICE);
  if (is_under_mps()) {
    if (const CUresult bad = join_mps(fd_, mps)) return leave_after(bad);
    ++received_;
  } else {
    mps = MpsMembership();  // the limits apply only under MPS
  }
  life = Life::kReady;
  observes_ = flags & proto::kObserver;
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
  spawn([this] { execute_loop(Bodies::kHostFunctions); });
  if (!is_virtual()) spawn([this] { execute_loop(Bodies::kDeviceWork); });
  return CUDA_SUCCESS;
}

// A failed start leaves nothing behind, so that it can be tried again.
CUresult Runtime::leave_after(CUresult error) {
  close(fd_);
  fd_ = -1;
  if (mps.control_fd >= 0) close(mps.control_fd);
  mps = MpsMembership();
  return error;
}

uint64_t Runtime::now_ns() const { return is_virtual() ? last_time_ns_ : monotonic_ns(); }

void Runtime::append(const void* message, size_t bytes) {
  if (life != Life::kReady) return;
  if (outbox_.size() + bytes > proto::kMaxPacketBytes) flush();
  const char* begin = static_cast<const char*>(message);
  outbox_.insert(outbox_.end(), begin, begin + bytes);
  idle_due_ = true;
  only_looked_ = false;
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
       proto::MemReserve{{}, request, bytes, gpu_of(device_index), static_cast<uint32_t>(kind)});
  return await_reply(lock, request, &memory_replies_, reply);
}

bool Runtime::ask_retain(Lock& lock, uint64_t allocation, proto::MemReply* reply) {
  const uint64_t request = next_number();
  post(Type::kMemRetain, proto::MemRetain{{}, request, allocation});
  return await_reply(lock, request, &memory_replies_, reply);
}

bool Runtime::ask_memory_info(Lock& lock, int device_index, proto::MemInfoReply* reply) {
  const uint64_t request = next_number();
  post(Type::kMemInfo, proto::MemInfo{{}, request, gpu_of(device_index), 0});
  return await_reply(lock, request, &info_replies_, reply);
}

bool Runtime::live(uint64_t op) const {
  return op >= first_op_ && op - first_op_ < ops_.size() && ops_[op - first_op_] != nullptr;
}

// Adds the implicit barriers of the legacy default stream, in both directions.
void Runtime::order_after_barriers(const Stream* stream, std::vector<uint64_t>* deps) const {
  const Context* context = stream->context;
  if (!stream->legacy) {
    const Stream* legacy = stream->green ? stream->green->legacy : context->legacy;
    if (stream->blocking() && legacy && live(legacy->last_op)) deps->push_back(legacy->last_op);
    return;
  }
  for (const Stream* other : context->streams) {
    const bool ordered = other != stream && other->green == stream->green && other->blocking();
    if (ordered && live(other->last_op)) {
      deps->push_back(other->last_op);
    }
  }
  for (const LeftWork& work : context->left) {
    if (work.green == stream->green && work.blocking && live(work.last_op)) {
      deps->push_back(work.last_op);
    }
  }
}

uint64_t Runtime::submit(Stream* stream, const Work& work, std::vector<uint64_t> deps) {
  order_after_barriers(stream, &deps);
  submit_unbarred(stream, work, deps);
  kick();
  return stream->last_op;
}

uint64_t Runtime::submit_unbarred(Stream* stream, const Work& work,
                                  const std::vector<uint64_t>& deps) {
  auto rest = deps.begin();
  for (; deps.end() - rest > proto::kMaxDeps; rest += proto::kMaxDeps) {
    // More than one message can carry: markers in the same stream take the first ones.
    write_submit(stream, Work(), {rest, rest + proto::kMaxDeps});
  }
  if (rest == deps.begin()) {
    write_submit(stream, work, deps);
  } else {
    write_submit(stream, work, {rest, deps.end()});
  }
  return stream->last_op;
}

void Runtime::kick() {
  if (!is_virtual()) {
    if (sent_pending_ == 1) {
      flush();  // the device has nothing else to do
    } else if (!flush_armed_) {
      flush_armed_ = true;
      const uint64_t one = 1;
      (void)!::write(wake_fd_, &one, sizeof one);
    }
  }
}

void Runtime::write_submit(Stream* stream, const Work& given, const std::vector<uint64_t>& deps) {
  Op* op;
  if (spare_ops_.empty()) {
    op = new Op;
  } else {
    op = spare_ops_.back();
    spare_ops_.pop_back();
  }
  op->id = first_op_ + ops_.size();
  op->stream = stream;
  op->unsatisfied = false;
  op->work = given;
  const Work& work = op->work;
  ops_.push_back(op);
  ++sent_pending_;
  stream->last_op = op->id;
  ++stream->pending_ops;
  ++stream->context->pending_ops;
  if (work.event) {
    work.event->op = op->id;
    ++work.event->pending_ops;
  }

  proto::Submit message;
  constexpr size_t kFixed = offsetof(proto::Submit, dep);
  memset(static_cast<void*>(&message), 0, kFixed);
  const size_t bytes = kFixed + deps.size() * sizeof deps[0];
  message.header = {static_cast<uint16_t>(Type::kSubmit), static_cast<uint16_t>(bytes), 0};
  message.op = op->id;
  message.context = stream->context->number;
  message.stream = stream->number;
  message.dep_count = static_cast<uint32_t>(deps.size());
  if (!deps.empty()) memcpy(message.dep, deps.data(), deps.size() * sizeof deps[0]);
  describe(work, &message);
  append(&message, bytes);
}

// Having had to wait, it waits until a quarter is free; otherwise every operation that ends would
// wake it.
void Runtime::wait_for_room(Lock& lock, Context* context) {
  if (has_room(context)) return;
  const uint64_t enough = std::max<uint64_t>(1, queue_limit_ - queue_limit_ / 4);
  const uint64_t surplus = context->pending_ops > enough ? context->pending_ops - enough : 0;
  const auto roomy = [&] { return context->pending_ops < enough && has_room(context); };
  wait(lock, roomy, proto::kNever, {nullptr, surplus + 1});
}

void Runtime::wait_for_ops(Lock& lock, const std::vector<uint64_t>& ops) {
  const auto alive = [&](uint64_t id) { return live(id); };
  const auto done = [&] { return std::none_of(ops.begin(), ops.end(), alive); };
  wait(lock, done, proto::kNever, {&ops, 0});
  if (!ptx::anything_printed()) return;
  lock.unlock();  // the reader of stdout may be slow
  ptx::flush_printed();
  lock.lock();
}

std::vector<uint64_t> Runtime::tail_of(const Stream* stream) const {
  std::vector<uint64_t> ops{stream->last_op};
  if (stream->legacy) order_after_barriers(stream, &ops);
  return ops;
}

std::vector<uint64_t> Runtime::frontier_of(const Stream* stream) const {
  std::vector<uint64_t> ops;
  if (live(stream->last_op)) ops.push_back(stream->last_op);
  order_after_barriers(stream, &ops);
  return ops;
}

void Runtime::let_time_pass(Lock& lock, uint64_t op) {
  flush();
  if (!is_virtual()) return;
  // Steps grow, otherwise a loop over a long operation would take a million polls. A step also ends
  // with the operation, so the answer does not come late.
  ThreadState& thread = this_thread();
  if (thread.polled_op != op) thread.polled_since_ns = last_time_ns_;
  thread.polled_op = op;
  const uint64_t step_ns = (last_time_ns_ - thread.polled_since_ns) / 8;
  const uint64_t deadline_ns = last_time_ns_ + std::max(kPollQuantumNs, step_ns);
  const std::vector<uint64_t> ops{op};
  wait(lock, [&] { return !live(op); }, deadline_ns, {&ops, 0});
}

void Runtime::thread_begins(Lock& lock) {
  ++running_;
  this_thread().known = true;
  this_thread().outside = false;
  if (!is_virtual() || life != Life::kReady) return;
  // The device may believe that this process is idle. Any message makes it busy again, and the
  // answer to this one is the current time.
  const proto::Header sync{static_cast<uint16_t>(Type::kSyncTime), sizeof sync, 0};
  append(&sync, sizeof sync);
  const uint64_t heard = times_heard_;
  wait(lock, [&] { return times_heard_ > heard; });
}

void Runtime::thread_ends() {
  only_looked_ = false;
  settle_after(-1);
}

void Runtime::settle_after(int change) {
  running_ += change;
  if (running_ == 0) say_idle_if_settled();
}

void Runtime::say_idle_if_settled() {
  if (running_ != 0 || !is_virtual() || life != Life::kReady) return;
  uint64_t deadline_ns = proto::kNever;
  uint64_t look_step_ns = proto::kNever;
  bool for_time = false;
  for (const Waiter* waiter : waiters_) {
    deadline_ns = std::min(deadline_ns, waiter->deadline_ns);
    if (waiter->look.step_ns) look_step_ns = std::min(look_step_ns, waiter->look.step_ns);
    else for_time |= waiter->deadline_ns != proto::kNever;
  }
  if (!idle_due_ && deadline_ns == idle_deadline_ns_) return;
  // Memory that is freed when an operation ends must not be freed late: others may want it.
  const bool frees_on_done = !late_frees.empty() || !pools.empty();
  proto::Idle idle{{}, received_, deadline_ns, frees_on_done ? 0 : proto::kNever, {}};
  for (const Waiter* waiter : waiters_) add_interest(waiter->interest, &idle);
  if (look_step_ns != proto::kNever) idle.look_step_ns = look_step_ns;
  idle.only_looked = only_looked_;
  idle.for_time = for_time;
  post(Type::kIdle, idle);
  flush();
  idle_due_ = false;
  only_looked_ = true;
  idle_deadline_ns_ = deadline_ns;
}

// Of several operations, one that is not done yet is enough: nothing is ready before it is done
// too.
void Runtime::add_interest(const Interest& interest, proto::Idle* idle) const {
  if (!interest.ops) {
    idle->patience = std::min(idle->patience, interest.count);
    return;
  }
  const auto still = std::find_if(interest.ops->rbegin(), interest.ops->rend(),
                                  [&](uint64_t op) { return live(op); });
  const auto end = std::end(idle->awaited);
  const auto slot = std::find(std::begin(idle->awaited), end, 0);
  if (still == interest.ops->rend() || slot == end) {
    idle->patience = 0;
  } else {
    *slot = *still;
  }
}

// Returns false if this was a nap and nothing has happened in virtual time.
bool Runtime::wait_erased(Lock& lock, bool (*ready)(void*), void* argument, uint64_t deadline_ns,
                          Interest interest, Look look) {
  if (life != Life::kReady || ready(argument)) return true;
  Waiter self{ready, argument, deadline_ns, interest, look, false, {}};
  waiters_.push_back(&self);
  only_looked_ = only_looked_ && look.only_looked;
  idle_due_ = true;
  flush();
  settle_after(-1);
  if (life != Life::kReady) wake_satisfied();
  const bool only_time = !interest.ops && interest.count == proto::kNever;
  const bool naps = observes_ && is_virtual() && only_time;
  while (!self.woken) {
    if (naps) {
      const bool is_called = nap_is_over_ && look.step_ns;
      if (is_called || self.changed.wait_for(lock, kNap) == std::cv_status::timeout) break;
      continue;
    }
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
  if (naps && look.step_ns) nap_is_over_ = false;
  if (self.woken) return true;
  const bool only_looked = only_looked_;
  thread_begins(lock);  // from a nap, which the device knows nothing about
  only_looked_ = only_looked;
  return false;
}

void Runtime::end_nap() {
  const Lock lock(mutex);
  nap_is_over_ = observes_;
  for (Waiter* waiter : waiters_) waiter->changed.notify_one();
}

bool Runtime::wait_for_change(Lock& lock, uint64_t step_ns, uint64_t deadline_ns,
                              bool only_looked) {
  const auto never = [](void*) { return false; };
  return wait_erased(lock, never, nullptr, deadline_ns, kOnlyTime, {step_ns, only_looked});
}

void Runtime::wake_satisfied() {
  const uint64_t now = is_virtual() ? last_time_ns_ : 0;  // waiters check real deadlines themselves
  for (Waiter* waiter : waiters_) {
    if (waiter->woken) continue;
    const bool looks = look_is_due_ && waiter->look.step_ns;
    if (life == Life::kReady && waiter->deadline_ns > now && !looks &&
        !waiter->ready(waiter->argument)) {
      continue;
    }
    waiter->woken = true;
    waiter->deadline_ns = proto::kNever;
    ++running_;
    waiter->changed.notify_one();
  }
}

thread_local bool t_in_body = false;

namespace {

thread_local ThreadState* t_state = nullptr;

// Runs when a thread ends; for the main thread at exit, before the exit handlers, which may make
// calls.
struct ThreadEnd {
  ~ThreadEnd() {
    ThreadState& thread = *t_state;
    if (!thread.known) return;
    Runtime& rt = runtime();
    const Lock lock(rt.mutex);
    thread.known = false;
    if (!thread.outside) rt.thread_ends();
  }
};

// Does not run at exit: a key's destructor runs only when a thread ends.
void drop_state(void* state) {
  delete static_cast<ThreadState*>(state);
  t_state = nullptr;
}

void make_state() {
  static const pthread_key_t key = [] {
    pthread_key_t made{};
    pthread_key_create(&made, drop_state);
    return made;
  }();
  t_state = new ThreadState;
  pthread_setspecific(key, t_state);
  static thread_local ThreadEnd end;
  (void)end;
}

}  // namespace

ThreadState& this_thread() {
  if (!t_state) make_state();
  return *t_state;
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
  if (need == kClock) return;
  if (rt.locked) rt.wait(lock, [this] { return !rt.locked; });
  if (rt.life != Life::kReady) {
    error = CUDA_ERROR_DEVICE_UNAVAILABLE;
    return;
  }
  counted_ = true;
  ++rt.calls_under_way;
  if (need == kNothing) return;
  if (thread.stack.empty() || !thread.stack.back()) {
    error = CUDA_ERROR_INVALID_CONTEXT;
    return;
  }
  context = thread.stack.back();
  const bool alive = context->alive;
  green = context->green;
  context = home_of(context);
  error = alive ? context->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!error && need == kUnsafe) error = refuse_unsafe(rt);
}

Call::~Call() {
  if (!counted_) return;
  if (!lock.owns_lock()) lock.lock();
  --rt.calls_under_way;
  rt.say_frozen_if_quiet();
}

// Whatever the calls submitted is already in the outbox, before the answer.
void Runtime::say_frozen_if_quiet() {
  if (!locked || frozen_said_ || calls_under_way > 0) return;
  frozen_said_ = true;
  post(Type::kFrozen, proto::Frozen{{}});
  flush();
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
