// Operations from SUBMIT to DONE.
#include <algorithm>
#include <iterator>
#include <utility>

#include "engine.h"

namespace tandem::softgpu {
namespace {

constexpr int kAhead = 256;  // how many STARTs of one stream go out together

bool takes_device_time(OpKind kind) { return kind < OpKind::kHostFunc; }

}  // namespace

// Hands out the stream's first operation, unless that was done already or something holds it back.
void Engine::begin_first(Stream* stream) {
  if (!stream->first || stream->op || stream->waits || held_by_dependency(stream)) return;
  Op* op = make_op(stream->first);
  stream->op = op;
  if (takes_device_time(op->kind)) {
    gpus_[op->context->gpu].add(op);
  } else {
    instant_.insert(op);
  }
}

// Drops satisfied dependencies of the stream's first operation; waits for one that is not
// satisfied.
bool Engine::held_by_dependency(Stream* stream) {
  Pending* first = stream->first;
  while (Dependency* dependency = first->after) {
    if (Pending* earlier = find_op(dependency->on)) {
      stream->next_waiter = earlier->waiters;
      earlier->waiters = stream;
      stream->waits = true;
      return true;
    }
    first->after = dependency->next;
    dependencies_.give_back(dependency);
  }
  return false;
}

void Engine::stop_waiting(Stream* stream) {
  if (!stream->waits) return;
  Pending* earlier = find_op(stream->first->after->on);
  Stream** link = &earlier->waiters;
  while (*link != stream) link = &(*link)->next_waiter;
  *link = stream->next_waiter;
  stream->waits = false;
}

Op* Engine::make_op(Pending* submitted) {
  Op* op = ops_.take();
  *op = Op{};
  op->submitted = submitted;
  op->id = submitted->id;
  op->stream = submitted->stream;
  op->context = op->stream->context;
  op->client = op->context->client;
  op->kind = static_cast<OpKind>(submitted->kind);
  op->priority = submitted->priority;
  op->name = names_.text(submitted->name);
  op->fault = submitted->fault;
  op->slowness = submitted->slowness;
  op->needs_body = submitted->needs_body;
  op->body_done = submitted->body_done;
  op->cost_pending = submitted->cost_pending;
  op->status = submitted->status;
  op->bytes = submitted->amount;
  if (op->kind == OpKind::kKernel) {
    op->kernel = {submitted->amount,          submitted->block_threads, submitted->flops_per_block,
                  submitted->bytes_per_block, submitted->asleep_ns,     submitted->fitting_blocks,
                  submitted->least_sms};
    op->bytes = kernel_bytes(*submitted);
  }
  op->ready_ns = now_ns_;
  return op;
}

// Frees an operation that has left its stream and the table.
void Engine::forget(Pending* submitted) {
  while (Dependency* dependency = submitted->after) {
    submitted->after = dependency->next;
    dependencies_.give_back(dependency);
  }
  names_.let_go(submitted->name);
  pending_.give_back(submitted);
}

// Does everything that happens at the present time, until nothing more does.
void Engine::settle() {
  if (!locking_.empty()) look_at_locks();
  for (bool changed = true; changed;) {
    while (collect_ended()) {
    }
    changed = false;
    for (Gpu& gpu : gpus_) {
      for (Op* op : gpu.schedule(now_ns_)) start(op);
      changed = changed || gpu.next_event_ns() <= now_ns_;
    }
  }
  if (!locking_.empty()) look_at_locks();
}

bool Engine::collect_ended() {
  // By number, not by pointer: a failed operation cancels others that may be in this list.
  std::vector<std::pair<Client*, uint64_t>> ended;
  for (Gpu& gpu : gpus_) {
    for (const Op* op : gpu.collect(now_ns_)) ended.emplace_back(op->client, op->id);
  }
  for (auto it = waits_.begin(); it != waits_.end();) {
    Op* op = *it;
    if (op->retry_ns > now_ns_) {
      ++it;
      continue;
    }
    it = waits_.erase(it);
    tell(op->client, Type::kStart, Start{{}, op->id, now_ns_, {}});
  }
  std::set<Op*, ById> instant;
  instant.swap(instant_);
  for (Op* op : instant) {
    if (!op->started) {
      op->started = true;
      op->start_ns = op->part_start_ns = now_ns_;
      start(op);
    }
    if (op->needs_body && !op->body_done) continue;
    op->remaining = 0;
    timeline_.part(*op, now_ns_, true);
    ended.emplace_back(op->client, op->id);
  }
  for (const auto& [client, id] : ended) {
    const Pending* submitted = client->ops.find(id);
    if (submitted) finish(submitted->stream->op);
  }
  return !ended.empty() || !instant_.empty();
}

void Engine::start(Op* op) {
  if (!op->needs_body || op->submitted->asked) return;
  ask(op->submitted, op->sm_set);
  const bool is_virtual = clock_ == ClockKind::kVirtual;
  if (is_virtual && takes_device_time(op->kind)) ask_ahead(op->submitted);
}

void Engine::ask(Pending* submitted, const SmSet& place) {
  submitted->asked = true;
  Start message{{}, submitted->id, now_ns_, {}};
  write_words(place, &message.sms);
  tell(submitted->stream->context->client, Type::kStart, message);
}

// Requests the bodies of the operations that follow directly in the stream: one round trip for
// many. Stops at a kernel whose context has only a part of the SMs: its SMs are known only when it
// begins.
void Engine::ask_ahead(Pending* first) {
  Pending* next = first->next;
  for (int i = 0; i < kAhead && next; ++i, next = next->next) {
    const auto kind = static_cast<OpKind>(next->kind);
    const bool is_marker = kind == OpKind::kEvent && !next->needs_body;
    if (next->after || next->fault != FaultKind::kNone) return;
    if (is_marker) continue;
    if (!takes_device_time(kind)) return;
    if (kind == OpKind::kKernel && next->stream->context->sm_percent < 100) return;
    if (next->needs_body && !next->asked) ask(next, SmSet());
  }
}

// `op` has ended; only its stream and its client still refer to it.
void Engine::finish(Op* op) {
  if (op->fault == FaultKind::kLaunchFailed) op->status = kLaunchFailed;
  if (op->fault == FaultKind::kDeviceLost) op->status = kDeviceUnavailable;
  if (op->fault == FaultKind::kEccUncorrectable) op->status = kEccUncorrectableError;
  if (op->fault == FaultKind::kCopyFailed) op->status = kUnknown;
  suffer(*op);
  Client* client = op->client;
  Context* context = op->context;
  const uint32_t status = op->status;
  Pending* submitted = op->submitted;
  send_done(*submitted, op->started ? op->start_ns : now_ns_, status);
  client->ops.erase(op->id);
  answer_watches({client->connection, op->id});
  Stream* waiter = submitted->waiters;
  leave_stream(op->stream);
  ops_.give_back(op);
  forget(submitted);
  while (waiter) {
    Stream* stream = waiter;
    waiter = stream->next_waiter;
    stream->waits = false;
    begin_first(stream);
  }
  ++client->ops_done;
  ++ops_done_;
  retry_waits_of(client);
  if (status != kSuccess) poison(*context, status);
}

// Applies the effect of an operation's end on its device, and announces it. A client's word (the
// status of a body) is enough for an XID, but not for the loss of the device.
void Engine::suffer(const Op& op) {
  const uint32_t gpu = gpus_[op.context->gpu].device().index;  // events belong to the whole device
  Health& health = gpus_[op.context->gpu].health();
  switch (op.fault) {
    case FaultKind::kEccCorrected:
      ++health.ecc_corrected;
      return announce(gpu, kEventEccCorrected, 0);
    case FaultKind::kEccUncorrectable:
      ++health.ecc_uncorrectable;
      announce(gpu, kEventEccUncorrectable, 0);
      return announce(gpu, kEventXid, kXidEccUncorrectable);
    case FaultKind::kDeviceLost:
      for (Gpu& part : gpus_) {  // all of its instances
        if (part.device().index == gpu) part.health().lost = true;
      }
      return announce(gpu, kEventXid, kXidOffTheBus);
    default: break;
  }
  if (op.kind != OpKind::kKernel) return;
  if (op.status == kIllegalAddress) announce(gpu, kEventXid, kXidMmuFault);
  if (op.status == kLaunchFailed) announce(gpu, kEventXid, kXidGraphicsException);
}

void Engine::announce(uint32_t gpu, uint64_t type, uint64_t data) {
  for (auto& [connection, client] : clients_) {
    if (!client->watches_events) continue;
    client->replies.add(Type::kDeviceEvent, DeviceEvent{{}, type, data, gpu, 0});
    flush(&client->replies, client.get());
  }
}

// The stream's first operation has ended.
void Engine::leave_stream(Stream* stream) {
  stream->op = nullptr;
  stream->first = stream->first->next;
  if (stream->first) {
    begin_first(stream);
  } else if (stream->closing) {
    stream->context->client->streams.erase(stream->number);
  }
}

void Engine::send_done(const Pending& submitted, uint64_t start_ns, uint32_t status) {
  Client* client = submitted.stream->context->client;
  tell_done(client, static_cast<OpKind>(submitted.kind),
            Done{{}, submitted.id, start_ns, now_ns_, status, 0});
}

// Something of this client has ended and may have written the word that a wait watches.
void Engine::retry_waits_of(const Client* client) {
  for (Op* op : waits_) {
    if (op->client == client) op->retry_ns = now_ns_;
  }
}

// Ends every operation of the context at once, in order of submission.
void Engine::cancel_all(Context* context, uint32_t status) {
  Client* client = context->client;
  std::vector<Pending*> victims;
  for (auto& [number, stream] : client->streams) {
    if (stream.context != context) continue;
    stop_waiting(&stream);
    if (stream.op) withdraw(stream.op);
    for (Pending* one = stream.first; one; one = one->next) victims.push_back(one);
  }
  std::sort(victims.begin(), victims.end(),
            [](const Pending* a, const Pending* b) { return a->id < b->id; });
  std::vector<Stream*> freed;  // streams of other contexts that waited for one of these
  for (Pending* victim : victims) {
    const Op* op = victim->stream->first == victim ? victim->stream->op : nullptr;
    send_done(*victim, op && op->started ? op->start_ns : now_ns_, status);
    client->ops.erase(victim->id);
    answer_watches({client->connection, victim->id});
    for (Stream* waiter = victim->waiters; waiter; waiter = waiter->next_waiter) {
      waiter->waits = false;
      freed.push_back(waiter);
    }
  }
  for (auto it = client->streams.begin(); it != client->streams.end();) {
    Stream& stream = it->second;
    if (stream.context != context) {
      ++it;
      continue;
    }
    if (stream.op) ops_.give_back(stream.op);
    stream.op = nullptr;
    stream.first = nullptr;
    it = stream.closing ? client->streams.erase(it) : std::next(it);
  }
  for (Pending* victim : victims) forget(victim);
  for (Stream* stream : freed) begin_first(stream);
}

// Takes an operation away from whatever has it.
void Engine::withdraw(Op* op) {
  gpus_[op->context->gpu].remove(op, now_ns_);
  instant_.erase(op);
  waits_.erase(op);
}

// A failed operation ends its context for good. As on a GPU, a fault under MPS also ends the
// contexts of everyone who shares the device; the loss of a device ends those on all of its
// instances, in any mode.
void Engine::poison(const Context& failed, uint32_t status) {
  const bool lost = gpus_[failed.gpu].health().lost;
  const uint32_t index = gpus_[failed.gpu].device().index;
  const uint32_t server = failed.client->mps_server;
  for (auto& [id, client] : participants_) {
    for (auto& [number, context] : client->contexts) {
      const bool shares = mode_ == Mode::kMps || (server != 0 && client->mps_server == server);
      const bool hit = &context == &failed || (shares && context.gpu == failed.gpu) ||
                       (lost && gpus_[context.gpu].device().index == index);
      if (!hit || context.poison != kSuccess) continue;
      context.poison = status;
      tell(client, Type::kFault, Fault{{}, number, status, 0});
      cancel_all(&context, status);
    }
  }
  note_mps_fault(*failed.client, status);
}

void Engine::drop_everything_of(Client* client) {
  for (auto& [number, stream] : client->streams) stop_waiting(&stream);
  std::vector<Stream*> freed;  // of other clients
  for (auto& [number, stream] : client->streams) {
    if (stream.op) {
      withdraw(stream.op);
      ops_.give_back(stream.op);
    }
    for (Pending* one = stream.first; one;) {
      client->ops.erase(one->id);
      answer_watches({client->connection, one->id});
      for (Stream* waiter = one->waiters; waiter; waiter = waiter->next_waiter) {
        waiter->waits = false;
        freed.push_back(waiter);
      }
      forget(std::exchange(one, one->next));
    }
  }
  for (Stream* stream : freed) begin_first(stream);
  for (const auto& [number, context] : client->contexts) gpus_[context.gpu].forget(context);
}

uint64_t Engine::next_device_event_ns() const {
  uint64_t next = instant_.empty() ? kNever : now_ns_;
  for (const Gpu& gpu : gpus_) next = std::min(next, gpu.next_event_ns());
  for (const Op* op : waits_) next = std::min(next, op->retry_ns);
  if (!locking_.empty()) next = std::min(next, next_lock_deadline_ns());
  return next;
}

}  // namespace tandem::softgpu
