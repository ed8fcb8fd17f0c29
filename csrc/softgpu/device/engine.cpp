#include "engine.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace tandem::softgpu {
namespace {

constexpr uint32_t kFirstObserver = 1'000'000;  // in ties, observers come after all workers
constexpr uint32_t kFirstQuery = 2'000'000;
// Limit on the replies to one packet: a status is a thousand times as long as its query.
constexpr size_t kMaxReplyBytes = 1 << 20;
constexpr uint64_t kMostKept = 4096;  // DONEs kept for one client, however patient it is

template <typename Message>
bool copy_message(const uint8_t* from, size_t bytes, Message* to) {
  if (bytes != sizeof *to) return false;
  std::memcpy(to, from, bytes);
  return true;
}

bool copy_idle(const uint8_t* from, size_t bytes, Idle* to) {
  if (bytes != offsetof(Idle, patience) && bytes != sizeof *to) return false;
  std::memcpy(to, from, bytes);
  return true;
}

// Accepts a message without the dependencies it does not use.
bool copy_submit(const uint8_t* from, size_t bytes, Submit* to) {
  if (bytes < offsetof(Submit, dep) || bytes > sizeof *to) return false;
  std::memcpy(to, from, bytes);
  const size_t sent = (bytes - offsetof(Submit, dep)) / sizeof to->dep[0];
  return to->dep_count <= kMaxDeps && to->dep_count <= sent;
}

}  // namespace

Engine::Engine(const Settings& settings, uint64_t real_now_ns)
    : profile_(settings.profile),
      clock_(settings.clock),
      arbitration_(settings.arbitration),
      mode_(settings.arbitration.mode),
      start_clients_(settings.clock == ClockKind::kVirtual ? settings.start_clients : 0),
      faults_(settings.faults),
      now_ns_(settings.clock == ClockKind::kVirtual ? 0 : real_now_ns),
      started_real_ns_(real_now_ns),
      real_now_ns_(real_now_ns) {
  timeline_.set_enabled(!settings.timeline_path.empty());
  timeline_state_ = settings.timeline_path.empty() ? "off" : "complete";
  mig_.resize(settings.device_count);
  std::copy(settings.mig.begin(), settings.mig.end(), mig_.begin());
  for (const auto& instances : mig_) has_mig_on_.push_back(!instances.empty());
  make_gpus();
}

uint32_t Engine::open(int32_t pid, uint64_t real_now_ns, uint32_t uid) {
  auto client = std::make_unique<Client>();
  client->connection = ++last_connection_;
  client->pid = pid;
  client->uid = uid;
  client->spoke_real_ns = real_now_ns;
  client->memory_limit_bytes.fill(kNever);
  clients_.emplace(client->connection, std::move(client));
  return last_connection_;
}

Client* Engine::find(uint32_t connection) {
  const auto found = clients_.find(connection);
  return found == clients_.end() ? nullptr : found->second.get();
}

size_t Engine::lease_count() const { return participants_.size() + mps_servers_.size(); }

void Engine::handle(uint32_t connection, const uint8_t* packet, size_t bytes,
                    uint64_t real_now_ns) {
  Client* client = find(connection);
  if (!client || client->condemned) return;
  if (clock_ == ClockKind::kReal) run(real_now_ns);  // first handle what was due before this packet
  client->spoke_real_ns = real_now_ns;
  client->left_behind = false;
  const char* error = bytes == 0 ? "an empty packet" : nullptr;
  // The client goes on by itself (a thread was woken from elsewhere): send it what was kept back.
  if (!client->busy && !client->attention.due) flush(&client->events, client);
  for (size_t at = 0; !error && at < bytes;) {
    Header header;
    if (bytes - at < sizeof header) {
      error = "a packet that ends inside a header";
      break;
    }
    std::memcpy(&header, packet + at, sizeof header);
    if (header.size < sizeof header || header.size % 8 != 0 || header.size > bytes - at) {
      error = "a message of impossible size";
      break;
    }
    error = dispatch(client, static_cast<Type>(header.type), packet + at, header.size);
    if (!error && client->replies.bytes() > kMaxReplyBytes) error = "too many questions at once";
    at += header.size;
  }
  if (error) condemn(client, error);
  flush(&client->replies, client);
  run(real_now_ns);
}

void Engine::condemn(Client* client, const std::string& why) {
  client->condemned = true;
  client->busy = false;
  output_.to_close.push_back(client->connection);
  output_.log.push_back("client " + std::to_string(client->id) + " (pid " +
                        std::to_string(client->pid) + ", " + json_string(client->name) + ") sent " +
                        why + ", disconnecting it");
}

void Engine::close(uint32_t connection, uint64_t real_now_ns) {
  Client* client = find(connection);
  if (!client) return;
  if (clock_ == ClockKind::kReal) run(real_now_ns);
  drop_everything_of(client);
  drop_shares_of(client);
  for (Gpu& gpu : gpus_) {
    gpu.ledger().release_all(connection);
    gpu.forget_client(connection);
  }
  const auto entry = std::make_pair(client->id, client);
  const auto found = std::find(participants_.begin(), participants_.end(), entry);
  if (found != participants_.end()) participants_.erase(found);
  leave_mps(*client);
  ++changes_;
  if (Client* waiting = find(client->pending_lock.requester)) {
    reply_checkpoint(waiting, client->pending_lock.request, kInvalidValue, nullptr);
    flush(&waiting->replies, waiting);
  }
  clients_.erase(connection);
  run(real_now_ns);
}

void Engine::end_timeline() {
  timeline_.set_enabled(false);
  timeline_.take();
  timeline_state_ = "incomplete";
}

void Engine::advance(uint64_t real_now_ns) { run(real_now_ns); }

Output Engine::take_output() {
  output_.timeline += timeline_.take();
  return std::exchange(output_, {});
}

const char* Engine::dispatch(Client* client, Type type, const uint8_t* bytes, size_t size) {
  if (client->role == Role::kUnknown && type != Type::kHello) return "a message before HELLO";
  if (type != Type::kIdle && client->takes_part()) client->busy = true;
  const auto with = [&](auto message, auto handler) -> const char* {
    if (!copy_message(bytes, size, &message)) return "a message of the wrong size";
    return (this->*handler)(client, message);
  };
  switch (type) {
    case Type::kHello: return with(Hello{}, &Engine::hello);
    case Type::kMemInfo: return with(MemInfo{}, &Engine::mem_info);
    case Type::kQuery: return with(Query{}, &Engine::query);
    case Type::kCheckpoint: return with(Checkpoint{}, &Engine::checkpoint);
    case Type::kMigChange: return with(MigChange{}, &Engine::mig_change);
    default: break;
  }
  if (client->role == Role::kMpsServer && type == Type::kMpsTerminate) {
    return with(MpsTerminate{}, &Engine::mps_terminate);
  }
  if (!client->takes_part()) return "a message that such a connection may not send";
  switch (type) {
    case Type::kIdle: {
      Idle message{};
      if (!copy_idle(bytes, size, &message)) return "an IDLE of the wrong size";
      return idle(client, message);
    }
    case Type::kContextCreate: return with(ContextCreate{}, &Engine::context_create);
    case Type::kContextDestroy: return with(ContextDestroy{}, &Engine::context_destroy);
    case Type::kStreamCreate: return with(StreamCreate{}, &Engine::stream_create);
    case Type::kStreamConfine: return with(StreamConfine{}, &Engine::stream_confine);
    case Type::kStreamDestroy: return with(StreamDestroy{}, &Engine::stream_destroy);
    case Type::kMemReserve: return with(MemReserve{}, &Engine::mem_reserve);
    case Type::kMemRelease: return with(MemRelease{}, &Engine::mem_release);
    case Type::kFrozen: return with(Frozen{}, &Engine::frozen);
    case Type::kJoinMps: return with(JoinMps{}, &Engine::join_mps);
    case Type::kMemRetain: return with(MemRetain{}, &Engine::mem_retain);
    case Type::kEventShare: return with(EventShare{}, &Engine::event_share);
    case Type::kEventOpen: return with(EventOpen{}, &Engine::event_open);
    case Type::kEventRelease: return with(EventRelease{}, &Engine::event_release);
    case Type::kEventWatch: return with(EventWatch{}, &Engine::event_watch);
    case Type::kBody: return with(Body{}, &Engine::body);
    case Type::kSyncTime: client->replies.add(Type::kTime, Time{{}, now_ns_}); return nullptr;
    case Type::kSubmit: {
      Submit message{};
      if (!copy_submit(bytes, size, &message)) return "a SUBMIT of the wrong size";
      return submit(client, message);
    }
    default: return "a message of unknown type";
  }
}

const char* Engine::hello(Client* client, const Hello& message) {
  if (client->role != Role::kUnknown) return "a second HELLO";
  client->name = name_of(message.name);
  Welcome welcome{};
  welcome.protocol = kProtocol;
  if (message.protocol != kProtocol) {
    client->replies.add(Type::kWelcome, welcome);
    return "a HELLO of another protocol";
  }
  if (message.flags & kQueryOnly) {
    client->role = Role::kQuery;
    client->id = kFirstQuery + ++last_query_;
  } else if (message.flags & kMpsServer) {
    client->role = Role::kMpsServer;
    client->id = ++last_mps_server_;
    mps_servers_.emplace(client->id, client);
  } else if (message.flags & kObserver) {
    client->role = Role::kObserver;
    client->id = kFirstObserver + ++last_observer_;
  } else {
    client->role = Role::kWorker;
    client->id = ++last_worker_;
  }
  if (client->takes_part()) {
    const auto entry = std::make_pair(client->id, client);
    participants_.insert(std::upper_bound(participants_.begin(), participants_.end(), entry),
                         entry);
    client->busy = true;
  }
  welcome.client_id = client->id;
  welcome.clock = static_cast<uint32_t>(clock_);
  welcome.mode = static_cast<uint32_t>(mode_);
  welcome.now_ns = now_ns_;
  for (const Gpu& gpu : gpus_) {
    if (gpu.device().is_usable) welcome.device[welcome.device_count++] = gpu.device();
  }
  client->replies.add(Type::kWelcome, welcome);
  return nullptr;
}

const char* Engine::query(Client* client, const Query& message) {
  if (message.what > 2) return "an unknown query";
  QueryReply reply{};
  reply.request = message.request;
  if (message.what == 2) {
    if (client->role != Role::kQuery) return "a wish for events on a working connection";
    client->watches_events = true;
    client->replies.add_text(reply, "");
    return nullptr;
  }
  client->replies.add_text(reply, message.what == 0 ? status_json() : nvml_json());
  return nullptr;
}

const char* Engine::idle(Client* client, const Idle& message) {
  flush(&client->replies, client);  // replies to what came before in this packet count as sent
  if (message.received > client->sent_packets) return "an IDLE that counts packets never sent";
  if (message.received < client->sent_packets) return nullptr;
  client->busy = false;
  client->deadline_ns = message.deadline_ns;
  client->look_step_ns = message.look_step_ns;
  client->for_time = message.for_time != 0;
  if (!message.only_looked) ++changes_;
  Attention& attention = client->attention;
  attention.patience = std::min(message.patience, kMostKept);
  std::copy_n(message.awaited, kMaxAwaited, attention.awaited);
  attention.due = !client->events.empty();  // those from before the client said what it waits for
  return nullptr;
}

}  // namespace tandem::softgpu
