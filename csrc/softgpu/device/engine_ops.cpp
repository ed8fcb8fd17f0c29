// Operations from SUBMIT to DONE.
#include <algorithm>

#include "engine.h"

namespace tandem::softgpu {
namespace {

bool takes_device_time(const Op& op) { return op.kind < OpKind::kHostFunc; }

}  // namespace

void Engine::make_ready_if_free(Op* op) {
  if (op->ready || op->cancelled || op->pending_deps > 0 || op->stream->queue.front() != op) return;
  op->ready = true;
  op->ready_ns = now_ns_;
  if (takes_device_time(*op)) {
    gpus_[op->context->gpu].add(op);
  } else {
    instant_.insert(op);
  }
}

// Everything that happens at the present time, until nothing more does.
void Engine::settle() {
  for (bool changed = true; changed;) {
    while (collect_ended()) {
    }
    changed = false;
    for (Gpu& gpu : gpus_) {
      for (Op* op : gpu.schedule(now_ns_)) {
        start(op);
        changed = true;
      }
      changed = changed || gpu.next_event_ns() <= now_ns_;
    }
  }
}

bool Engine::collect_ended() {
  // By number, not by pointer: a failed operation cancels others that may be in this very list.
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
    op->client->events.add(Type::kStart, Start{{}, op->id, now_ns_});
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
    const auto found = client->ops.find(id);
    if (found != client->ops.end()) finish(found->second.get());
  }
  return !ended.empty() || !instant_.empty();
}

void Engine::start(Op* op) {
  if (op->needs_body) op->client->events.add(Type::kStart, Start{{}, op->id, now_ns_});
}

// `op` has ended and nobody but its stream and client knows it any more.
void Engine::finish(Op* op) {
  if (op->fault == FaultKind::kLaunchFailed) op->status = kLaunchFailed;
  if (op->fault == FaultKind::kDeviceLost) op->status = kDeviceUnavailable;
  Client* client = op->client;
  Context* context = op->context;
  const uint32_t status = op->status;
  const bool lost = op->fault == FaultKind::kDeviceLost;
  send_done(*op);
  leave_stream(op);
  for (Op* dependent : op->dependents) {
    --dependent->pending_deps;
    make_ready_if_free(dependent);
  }
  ++client->ops_done;
  ++ops_done_;
  client->ops.erase(op->id);
  retry_waits_of(client);
  if (lost) lost_.insert(context->gpu);
  if (status != kSuccess) poison(*context, status);
}

void Engine::leave_stream(Op* op) {
  Stream* stream = op->stream;
  stream->queue.pop_front();
  if (!stream->queue.empty()) {
    make_ready_if_free(stream->queue.front());
  } else if (stream->closing) {
    op->client->streams.erase(stream->number);
  }
}

void Engine::send_done(const Op& op) {
  const uint64_t start_ns = op.started ? op.start_ns : now_ns_;
  op.client->events.add(Type::kDone, Done{{}, op.id, start_ns, now_ns_, op.status, 0});
}

// Something of this client has ended and may have written the word that a wait looks at.
void Engine::retry_waits_of(const Client* client) {
  for (Op* op : waits_) {
    if (op->client == client) op->retry_ns = now_ns_;
  }
}

// Ends every operation of the context at once, in order of submission.
void Engine::cancel_all(Context* context, uint32_t status) {
  Client* client = context->client;
  std::vector<Op*> victims;
  for (const auto& [id, op] : client->ops) {
    if (op->context == context) victims.push_back(op.get());
  }
  std::sort(victims.begin(), victims.end(), ById());
  for (Op* op : victims) {
    op->cancelled = true;
    gpus_[context->gpu].remove(op, now_ns_);
    instant_.erase(op);
    waits_.erase(op);
  }
  for (auto it = client->streams.begin(); it != client->streams.end();) {
    Stream& stream = it->second;
    if (stream.context == context) stream.queue.clear();
    it = stream.context == context && stream.closing ? client->streams.erase(it) : std::next(it);
  }
  for (Op* op : victims) {
    op->status = status;
    send_done(*op);
    for (Op* dependent : op->dependents) {
      --dependent->pending_deps;
      make_ready_if_free(dependent);
    }
  }
  for (Op* op : victims) client->ops.erase(op->id);
}

// A failed operation ends its context for good; under MPS the fault takes down everyone who shares
// the device, as on a GPU, and so does the loss of the device in any mode.
void Engine::poison(const Context& failed, uint32_t status) {
  const bool whole_device = mode_ == Mode::kMps || lost_.count(failed.gpu) > 0;
  const uint32_t server = failed.client->mps_server;
  for (auto& [id, client] : participants_) {
    for (auto& [number, context] : client->contexts) {
      const bool shares = whole_device || (server != 0 && client->mps_server == server);
      const bool hit = &context == &failed || (shares && context.gpu == failed.gpu);
      if (!hit || context.poison != kSuccess) continue;
      context.poison = status;
      client->events.add(Type::kFault, Fault{{}, number, status, 0});
      cancel_all(&context, status);
    }
  }
  note_mps_fault(*failed.client, status);
}

void Engine::drop_everything_of(Client* client) {
  for (const auto& [id, op] : client->ops) {
    if (!op->ready) continue;
    if (takes_device_time(*op)) gpus_[op->context->gpu].remove(op.get(), now_ns_);
    instant_.erase(op.get());
    waits_.erase(op.get());
  }
  for (const auto& [number, context] : client->contexts) gpus_[context.gpu].forget(context);
}

uint64_t Engine::next_device_event_ns() const {
  uint64_t next = instant_.empty() ? kNever : now_ns_;
  for (const Gpu& gpu : gpus_) next = std::min(next, gpu.next_event_ns());
  for (const Op* op : waits_) next = std::min(next, op->retry_ns);
  return next;
}

}  // namespace tandem::softgpu
