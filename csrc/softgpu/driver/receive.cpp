// Handles what arrives from the device process: STARTs are executed, DONEs complete operations, and
// replies and times wake the threads that wait for them.
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "execute.h"
#include "green_context.h"
#include "pool.h"
#include "ptx_kernels.h"
#include "reach.h"
#include "runtime.h"

namespace softgpu {
namespace {

using proto::Header;
using proto::Type;

// Real clock: how long a launch may wait to be sent with others.
constexpr long kBatchNs = 20'000;

template <class Message>
Message read(const char* from) {
  Message message{};
  Header header;
  memcpy(&header, from, sizeof header);
  memcpy(&message, from, std::min<size_t>(sizeof message, header.size));
  return message;
}

// How many SMs the operation began on; 0: not known.
uint32_t count_begun_on(const Op& op) {
  uint32_t count = 0;
  for (const uint64_t word : op.sms) count += static_cast<uint32_t>(__builtin_popcountll(word));
  return count;
}

// The SMs that the operation began on, if its context has only a share of the SMs; otherwise empty.
std::vector<uint32_t> part_of_sms(const Op& op) {
  std::vector<uint32_t> sms;
  if (op.stream->context->sm_percent == 100) return sms;
  for (uint32_t i = 0; i < proto::kMaxSms; ++i) {
    if (op.sms[i / 64] >> (i % 64) & 1) sms.push_back(i);
  }
  return sms;
}

}  // namespace

void Runtime::receive_loop(int fd) {
  // The name that cuCheckpointProcessGetRestoreThreadId looks for.
  prctl(PR_SET_NAME, "softgpu-restore");
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
  if (!late_frees.empty() || !pools.empty()) reap_frees(*this);
  wake_satisfied();
  look_is_due_ = false;
  if (is_virtual()) {
    execute_here(lock);
  } else {
    flush();
  }
  say_idle_if_settled();
}

void Runtime::handle(const Header& header, const char* message) {
  const auto type = static_cast<Type>(header.type);
  only_looked_ = only_looked_ && type == Type::kTime;
  switch (type) {
    case Type::kStart: return on_start(read<proto::Start>(message));
    case Type::kDone: return on_done(read<proto::Done>(message));
    case Type::kTime: {
      const auto time = read<proto::Time>(message);
      ++times_heard_;
      last_time_ns_ = std::max(last_time_ns_, time.now_ns);
      look_is_due_ = look_is_due_ || time.look;
      return;
    }
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
    case Type::kEventReply: {
      const auto reply = read<proto::EventReply>(message);
      event_replies_[reply.request] = reply;
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
    case Type::kFreeze:
      locked = read<proto::Freeze>(message).on != 0;
      frozen_said_ = false;
      return say_frozen_if_quiet();
    default: return;
  }
}

void Runtime::on_start(const proto::Start& start) {
  last_time_ns_ = std::max(last_time_ns_, start.now_ns);
  if (!live(start.op)) return;
  ++running_;  // until its result is posted
  Op* op = ops_[start.op - first_op_];
  op->start_ns = start.now_ns;
  std::copy(std::begin(start.sms), std::end(start.sms), op->sms);
  executable_.push_back(op);
  if (!is_virtual() || op->work.kind == OpKind::kHostFunc) executable_changed_.notify_all();
}

void Runtime::on_done(const proto::Done& done) {
  last_time_ns_ = std::max(last_time_ns_, done.end_ns);
  if (!live(done.op)) return;
  Op* op = ops_[done.op - first_op_];
  Stream* stream = op->stream;
  CUresult status = static_cast<CUresult>(done.status);
  if (op->work.kind == OpKind::kMemOpWrite && status == CUDA_SUCCESS) {
    reveal(*this, reinterpret_cast<uintptr_t>(op->work.destination));
    status = run_write_value(op->work);
  }
  if (status != CUDA_SUCCESS && stream->context->error == CUDA_SUCCESS) {
    stream->context->error = status;
  }
  if (Event* event = op->work.event) {
    if (event->op == op->id) event->end_ns = done.end_ns;
    if (--event->pending_ops == 0 && event->destroyed) delete event;
  }
  --sent_pending_;
  --stream->context->pending_ops;
  if (--stream->pending_ops == 0 && stream->destroyed) delete stream;
  ops_[done.op - first_op_] = nullptr;
  while (!ops_.empty() && !ops_.front()) {
    ops_.pop_front();
    ++first_op_;
  }
  // The executor may still have a cancelled operation; it then releases it.
  if (op->unsatisfied || op->work.body == nullptr) return release(op);
  const auto queued = std::find(executable_.begin(), executable_.end(), op);
  if (queued != executable_.end()) {
    executable_.erase(queued);
    --running_;
    return release(op);
  }
  if (std::find(executing_.begin(), executing_.end(), op) == executing_.end()) release(op);
}

void Runtime::release(Op* op) {
  op->work = Work();  // what the work holds must not live as long as the spare operation
  spare_ops_.push_back(op);
}

// All bodies run on one thread; the kernels' static __shared__ relies on it. On the real clock that
// is the executor. On the virtual clock, where the device waits for this process anyway, it is the
// thread that received START, without a hand-over. Host functions have a thread of their own on
// both clocks: they may block, and other streams must go on.
Op* Runtime::take_executable(Bodies which) {
  const auto mine = [&](const Op* op) {
    return (op->work.kind == OpKind::kHostFunc) == (which == Bodies::kHostFunctions);
  };
  const auto found = std::find_if(executable_.begin(), executable_.end(), mine);
  if (found == executable_.end()) return nullptr;
  Op* op = *found;
  executable_.erase(found);
  return op;
}

void Runtime::execute_loop(Bodies which) {
  t_in_body = true;
  Lock lock(mutex);
  for (;;) {
    Op* op = nullptr;
    executable_changed_.wait(lock, [&] { return (op = take_executable(which)) != nullptr; });
    execute(lock, op);
  }
}

void Runtime::execute_here(Lock& lock) {
  t_in_body = true;
  while (Op* op = take_executable(Bodies::kDeviceWork)) execute(lock, op);
  t_in_body = false;
}

void Runtime::execute(Lock& lock, Op* op) {
  const uint64_t id = op->id;
  executing_.push_back(op);
  op->unsatisfied = false;
  const Stream* stream = op->stream;
  const std::vector<uint32_t> part = part_of_sms(*op);
  const uint32_t count = count_begun_on(*op);
  if (!part.empty()) {
    t_sms = {part.data(), count, count};
  } else if (const GreenContext* green = stream->green) {
    t_sms = {green->sms.data(), static_cast<uint32_t>(green->sms.size()), count};
  } else {
    t_sms = {nullptr, device.device[stream->context->device].sm_count, count};
  }
  // Clients of MPS see SMs 0, 1 and so on, whichever they have: as on an H200 with driver 580.
  if (is_under_mps()) t_sms.index = nullptr;
  CUresult status = op->stream->failure;
  t_start_ns = op->start_ns;
  t_cost = {};
  // Host functions may block, and they touch no device memory.
  Lock at_work(bodies, std::defer_lock);
  if (op->work.kind != OpKind::kHostFunc) at_work.lock();
  if (op->work.kind == OpKind::kKernel) hide_from(*this, *stream->context);
  lock.unlock();
  if (status == CUDA_SUCCESS) status = op->work.body(op->work);
  if (at_work) at_work.unlock();
  lock.lock();
  if (op->work.kind != OpKind::kHostFunc) reveal_all(*this);
  op->unsatisfied = status == CUDA_ERROR_NOT_READY;
  if (op->unsatisfied) status = CUDA_SUCCESS;
  if (live(id)) op->stream->failure = status;
  executing_.erase(std::find(executing_.begin(), executing_.end(), op));
  post(Type::kBody, proto::Body{{},
                                id,
                                static_cast<uint32_t>(status),
                                0,
                                op->unsatisfied ? uint64_t{1} : 0,
                                t_cost.flops,
                                t_cost.bytes,
                                t_cost.asleep_ns});
  if (!live(id)) release(op);
  if (!is_virtual()) flush();
  settle_after(-1);
}

// The device process is gone, or it disconnected this process. No thread may wait for it any
// longer.
void Runtime::lose() {
  if (life != Life::kReady) return;
  life = Life::kLost;
  wake_satisfied();
}

}  // namespace softgpu
