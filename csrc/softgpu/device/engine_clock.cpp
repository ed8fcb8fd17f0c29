// Advances the device's time and decides when clients hear of it.
#include <algorithm>
#include <iterator>

#include "engine.h"

namespace tandem::softgpu {
namespace {

constexpr uint64_t kPatienceNs = uint64_t{kObserverPatienceMs} * 1'000'000;

}  // namespace

void Engine::run(uint64_t real_now_ns) {
  real_now_ns_ = std::max(real_now_ns_, real_now_ns);
  wake_real_ns_ = kNever;
  if (clock_ == ClockKind::kReal) {
    run_real();
  } else {
    run_virtual();
  }
}

// However late the edge is, each event happens at the time the model gives it.
void Engine::run_real() {
  for (uint64_t next = 0; (next = next_device_event_ns()) <= real_now_ns_;) {
    now_ns_ = std::max(now_ns_, next);
    settle();
  }
  now_ns_ = real_now_ns_;
  settle();
  for (const auto& [id, client] : participants_) flush(&client->events, client);
  wake_real_ns_ = next_device_event_ns();
}

// A discrete-event simulation: do what happens now, tell those who must hear of it, advance to the
// next event. It stops whenever a client has something to do, and is called again once that client
// has spoken.
void Engine::run_virtual() {
  while (!someone_is_busy()) {
    settle();
    if (deliver_to_next() || wake_next_sleeper()) continue;
    if (last_worker_ < start_clients_) return;
    const uint64_t next_ns = next_virtual_ns();
    if (next_ns == kNever && deliver_kept()) continue;
    if (next_ns == kNever || held_back_until(next_ns)) return;
    now_ns_ = std::max(now_ns_, next_ns);
  }
}

bool Engine::someone_is_busy() {
  bool busy = false;
  for (const auto& [id, client] : participants_) {
    if (!client->busy || client->left_behind || client->condemned) continue;
    if (client->role == Role::kObserver) {
      const uint64_t patience_end_ns = client->spoke_real_ns + kPatienceNs;
      client->left_behind = patience_end_ns <= real_now_ns_;
      if (client->left_behind) continue;
      wake_real_ns_ = std::min(wake_real_ns_, patience_end_ns);
    }
    busy = true;
  }
  return busy;
}

bool Engine::deliver_to_next() {
  for (const auto& [id, client] : participants_) {
    if (!client->attention.due || client->left_behind || client->condemned) continue;
    flush(&client->events, client);
    return true;
  }
  return false;
}

// Nothing more will happen by itself, so nothing else would ever release the kept messages.
bool Engine::deliver_kept() {
  for (const auto& [id, client] : participants_) {
    if (client->events.empty() || client->left_behind || client->condemned) continue;
    flush(&client->events, client);
    return true;
  }
  return false;
}

void Engine::tell_done(Client* client, OpKind kind, const Done& done) {
  client->events.add(Type::kDone, done);
  Attention& attention = client->attention;
  uint64_t* const end = std::end(attention.awaited);
  attention.due = attention.due || done.status != kSuccess || kind == OpKind::kMemOpWrite ||
                  ++attention.kept >= attention.patience ||
                  std::find(std::begin(attention.awaited), end, done.op) != end;
}

bool Engine::wake_next_sleeper() {
  for (const auto& [id, client] : participants_) {
    if (client->left_behind || client->condemned) continue;
    const bool looks = next_look_ns(*client) <= now_ns_;
    if (client->deadline_ns > now_ns_ && !looks) continue;
    client->deadline_ns = kNever;
    if (looks) {
      client->looked_ns = now_ns_;
      client->changes_seen = changes_;
    }
    tell(client, Type::kTime, Time{{}, now_ns_, looks});
    flush(&client->events, client);
    return true;
  }
  return false;
}

uint64_t Engine::next_virtual_ns() const {
  uint64_t next_ns = next_device_event_ns();
  for (const auto& [id, client] : participants_) {
    if (client->left_behind || client->condemned) continue;
    next_ns = std::min({next_ns, client->deadline_ns, next_look_ns(*client)});
  }
  return next_ns;
}

// One change is seen at once; many changes are seen by one look.
uint64_t Engine::next_look_ns(const Client& client) const {
  if (!client.look_step_ns || client.changes_seen == changes_) return kNever;
  const uint64_t earliest_ns = client.looked_ns + client.look_step_ns;
  return std::max(now_ns_, earliest_ns < client.looked_ns ? kNever : earliest_ns);
}

// How many times as fast as real time virtual time may run; 0: no limit.
uint64_t Engine::pace() const {
  if (next_device_event_ns() != kNever) return 0;
  uint64_t pace = 1;
  for (const auto& [id, client] : participants_) {
    if (client->role != Role::kWorker || client->condemned) continue;
    if (client->for_time && client->deadline_ns != kNever) return 0;
    pace = kPace;
  }
  return pace;
}

// If there is nothing to simulate, only timers of polling threads, virtual time would race and they
// with it; it is then tied to real time.
bool Engine::held_back_until(uint64_t next_ns) {
  const uint64_t now_pace = pace();
  if (tied_pace_ != now_pace) {
    tied_pace_ = now_pace;
    tied_real_ns_ = real_now_ns_;
    tied_now_ns_ = now_ns_;
  }
  if (!now_pace) return false;
  const uint64_t allowed_ns = tied_now_ns_ + (real_now_ns_ - tied_real_ns_) * now_pace;
  if (next_ns <= allowed_ns) return false;
  const uint64_t missing_ns = (next_ns - allowed_ns + now_pace - 1) / now_pace;  // in real time
  wake_real_ns_ = std::min(wake_real_ns_, real_now_ns_ + missing_ns);
  return true;
}

void Engine::flush(Outbox* outbox, Client* client) {
  if (outbox == &client->events) client->attention = {};
  for (Bytes& packet : outbox->take()) {
    output_.packets.push_back({client->connection, std::move(packet)});
    ++client->sent_packets;
    client->busy = client->takes_part();
    client->spoke_real_ns = real_now_ns_;  // restart the patience with an observer
  }
}

}  // namespace tandem::softgpu
