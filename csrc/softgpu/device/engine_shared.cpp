// Ordering across clients: interprocess events, and dependencies on their records.
//
// Operations refer to each other by number: either may end, be cancelled with its context or go
// with its client while the other lives on.
#include <iterator>

#include "engine.h"

namespace tandem::softgpu {
namespace {

constexpr size_t kMaxSharedEvents = 65536;

}  // namespace

Pending* Engine::find_op(const OpRef& ref) {
  const Client* client = find(ref.connection);
  return client ? client->ops.find(ref.op) : nullptr;
}

SharedEvent* Engine::held_event(const Client* client, uint64_t event) {
  const auto found = shared_events_.find(event);
  if (found == shared_events_.end()) return nullptr;
  return found->second.holders.count(client->connection) ? &found->second : nullptr;
}

const char* Engine::event_share(Client* client, const EventShare& message) {
  EventReply reply{};
  reply.request = message.request;
  if (shared_events_.size() >= kMaxSharedEvents) {
    reply.status = kOutOfMemory;
  } else {
    reply.event = ++last_shared_event_;
    shared_events_[reply.event] = {
        message.cookie, {client->connection, message.op}, {{client->connection, 1}}};
  }
  client->replies.add(Type::kEventReply, reply);
  return nullptr;
}

const char* Engine::event_open(Client* client, const EventOpen& message) {
  EventReply reply{};
  reply.request = message.request;
  const auto found = shared_events_.find(message.event);
  if (found == shared_events_.end() || found->second.cookie != message.cookie) {
    reply.status = kInvalidHandle;
  } else {
    reply.event = message.event;
    ++found->second.holders[client->connection];
  }
  client->replies.add(Type::kEventReply, reply);
  return nullptr;
}

const char* Engine::event_release(Client* client, const EventRelease& message) {
  SharedEvent* event = held_event(client, message.event);
  if (!event) return "the release of an event that it does not hold";
  const auto holder = event->holders.find(client->connection);
  if (--holder->second == 0) event->holders.erase(holder);
  if (event->holders.empty()) shared_events_.erase(message.event);
  return nullptr;
}

const char* Engine::event_watch(Client* client, const EventWatch& message) {
  const SharedEvent* event = held_event(client, message.event);
  if (!event) return "a watch of an event that it does not hold";
  const OpRef record = event->recorded;
  const bool recorded = find_op(record) != nullptr;
  if (recorded && message.patient) {
    watches_[{record.connection, record.op}].push_back(
        {client->connection, message.request, message.event});
    return nullptr;
  }
  client->replies.add(
      Type::kEventReply,
      EventReply{{}, message.request, message.event, recorded ? kNotReady : kSuccess, 0});
  return nullptr;
}

// Adds the dependencies that the message names. An event that the operation records is tied to it
// from now on.
const char* Engine::depend(Pending* submitted, Client* client, const Submit& message) {
  for (uint32_t i = 0; i < message.dep_count; ++i) {
    OpRef on{client->connection, message.dep[i]};
    if (on.op & kSharedEventBit) {
      const SharedEvent* event = held_event(client, on.op & ~kSharedEventBit);
      if (!event) return "a wait for an event that it does not hold";
      on = event->recorded;
    }
    if (!find_op(on)) continue;
    Dependency* dependency = dependencies_.take();
    *dependency = {on, submitted->after};
    submitted->after = dependency;
  }
  const bool is_event = static_cast<OpKind>(message.kind) == OpKind::kEvent;
  if (!is_event || !(message.grid_blocks & kSharedEventBit)) return nullptr;
  SharedEvent* recorded = held_event(client, message.grid_blocks & ~kSharedEventBit);
  if (!recorded) return "a record of an event that it does not hold";
  recorded->recorded = {client->connection, message.op};
  return nullptr;
}

void Engine::answer_watches(const OpRef& ended) {
  const auto found = watches_.find({ended.connection, ended.op});
  if (found == watches_.end()) return;
  for (const Watch& watch : found->second) {
    Client* client = find(watch.connection);
    if (!client) continue;
    tell(client, Type::kEventReply, EventReply{{}, watch.request, watch.event, kSuccess, 0});
  }
  watches_.erase(found);
}

void Engine::drop_shares_of(const Client* client) {
  for (auto it = shared_events_.begin(); it != shared_events_.end();) {
    it->second.holders.erase(client->connection);
    it = it->second.holders.empty() ? shared_events_.erase(it) : std::next(it);
  }
}

}  // namespace tandem::softgpu
