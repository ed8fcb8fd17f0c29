#include "engine.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

namespace tandem::softgpu {
namespace {

// Far above what a program needs; a client beyond them is broken, and must not exhaust the process.
constexpr size_t kMaxContexts = 4096;
constexpr size_t kMaxStreams = 65536;
constexpr size_t kMaxLiveOps = 1'000'000;
constexpr uint32_t kFirstObserver = 1'000'000;  // observers come after all workers in ties
constexpr uint32_t kFirstQuery = 2'000'000;

std::string text_of(const char (&field)[kNameBytes]) {
  return std::string(field, strnlen(field, kNameBytes));
}

template <typename Message>
bool copy_message(const uint8_t* from, size_t bytes, Message* to) {
  if (bytes != sizeof *to) return false;
  std::memcpy(to, from, bytes);
  return true;
}

// Dependencies that are not used need not be sent.
bool copy_submit(const uint8_t* from, size_t bytes, Submit* to) {
  if (bytes < offsetof(Submit, dep) || bytes > sizeof *to) return false;
  std::memcpy(to, from, bytes);
  const size_t sent = (bytes - offsetof(Submit, dep)) / sizeof to->dep[0];
  return to->dep_count <= kMaxDeps && to->dep_count <= sent;
}

bool sensible(double amount) { return std::isfinite(amount) && amount >= 0; }

uint64_t kernel_bytes(const Submit& message) {
  const double bytes = static_cast<double>(message.grid_blocks) * message.bytes_per_block;
  return bytes < 1e18 ? static_cast<uint64_t>(bytes) : uint64_t{1'000'000'000'000'000'000};
}

}  // namespace

Engine::Engine(const Settings& settings, uint64_t real_now_ns)
    : profile_(settings.profile),
      clock_(settings.clock),
      mode_(settings.arbitration.mode),
      start_clients_(settings.clock == ClockKind::kVirtual ? settings.start_clients : 0),
      faults_(settings.faults),
      now_ns_(settings.clock == ClockKind::kVirtual ? 0 : real_now_ns),
      started_real_ns_(real_now_ns),
      real_now_ns_(real_now_ns) {
  timeline_.set_enabled(!settings.timeline_path.empty());
  gpus_.reserve(settings.device_count);
  for (uint32_t i = 0; i < settings.device_count; ++i) {
    gpus_.emplace_back(device_info(*profile_, i), settings.arbitration, &timeline_);
  }
}

uint32_t Engine::open(int32_t pid, uint64_t real_now_ns) {
  auto client = std::make_unique<Client>();
  client->connection = ++last_connection_;
  client->pid = pid;
  client->spoke_real_ns = real_now_ns;
  clients_.emplace(client->connection, std::move(client));
  return last_connection_;
}

Client* Engine::find(uint32_t connection) {
  const auto found = clients_.find(connection);
  return found == clients_.end() ? nullptr : found->second.get();
}

size_t Engine::lease_count() const { return participants_.size(); }

void Engine::handle(uint32_t connection, const uint8_t* packet, size_t bytes,
                    uint64_t real_now_ns) {
  Client* client = find(connection);
  if (!client || client->condemned) return;
  if (clock_ == ClockKind::kReal) run(real_now_ns);  // what was due before this packet comes first
  client->spoke_real_ns = real_now_ns;
  client->left_behind = false;
  const char* error = bytes == 0 ? "an empty packet" : nullptr;
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
  for (Gpu& gpu : gpus_) gpu.ledger().release_all(connection);
  participants_.erase(client->id);
  clients_.erase(connection);
  run(real_now_ns);
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
    default: break;
  }
  if (!client->takes_part()) return "a message that a query connection may not send";
  switch (type) {
    case Type::kIdle: return with(Idle{}, &Engine::idle);
    case Type::kContextCreate: return with(ContextCreate{}, &Engine::context_create);
    case Type::kContextDestroy: return with(ContextDestroy{}, &Engine::context_destroy);
    case Type::kStreamCreate: return with(StreamCreate{}, &Engine::stream_create);
    case Type::kStreamDestroy: return with(StreamDestroy{}, &Engine::stream_destroy);
    case Type::kMemReserve: return with(MemReserve{}, &Engine::mem_reserve);
    case Type::kMemRelease: return with(MemRelease{}, &Engine::mem_release);
    case Type::kBody: return with(Body{}, &Engine::body);
    case Type::kSyncTime:
      client->replies.add(Type::kTime, Time{{}, now_ns_});
      return nullptr;
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
  client->name = text_of(message.name);
  Welcome welcome{};
  welcome.protocol = kProtocol;
  if (message.protocol != kProtocol) {
    client->replies.add(Type::kWelcome, welcome);
    return "a HELLO of another protocol";
  }
  if (message.flags & kQueryOnly) {
    client->role = Role::kQuery;
    client->id = kFirstQuery + ++last_query_;
  } else if (message.flags & kObserver) {
    client->role = Role::kObserver;
    client->id = kFirstObserver + ++last_observer_;
  } else {
    client->role = Role::kWorker;
    client->id = ++last_worker_;
  }
  if (client->takes_part()) {
    participants_.emplace(client->id, client);
    client->busy = true;
  }
  welcome.client_id = client->id;
  welcome.clock = static_cast<uint32_t>(clock_);
  welcome.mode = static_cast<uint32_t>(mode_);
  welcome.now_ns = now_ns_;
  welcome.device_count = static_cast<uint32_t>(gpus_.size());
  for (size_t i = 0; i < gpus_.size(); ++i) welcome.device[i] = gpus_[i].device();
  client->replies.add(Type::kWelcome, welcome);
  return nullptr;
}

const char* Engine::context_create(Client* client, const ContextCreate& message) {
  if (message.device >= gpus_.size()) return "a context on a device that does not exist";
  if (message.sm_percent == 0 || message.sm_percent > 100) return "an SM percentage not in 1..100";
  if (client->contexts.size() >= kMaxContexts) return "too many contexts";
  Context context{client, message.context, message.device, message.sm_percent, kSuccess};
  if (lost_.count(message.device)) {
    context.poison = kDeviceUnavailable;
    client->events.add(Type::kFault, Fault{{}, message.context, kDeviceUnavailable, 0});
  }
  const bool fresh = client->contexts.emplace(message.context, context).second;
  return fresh ? nullptr : "a context number that is in use";
}

const char* Engine::context_destroy(Client* client, const ContextDestroy& message) {
  const auto found = client->contexts.find(message.context);
  if (found == client->contexts.end()) return nullptr;
  Context* context = &found->second;
  cancel_all(context, kContextIsDestroyed);
  for (auto it = client->streams.begin(); it != client->streams.end();) {
    it = it->second.context == context ? client->streams.erase(it) : std::next(it);
  }
  gpus_[context->gpu].forget(*context);
  client->contexts.erase(found);
  return nullptr;
}

const char* Engine::stream_create(Client* client, const StreamCreate& message) {
  const auto context = client->contexts.find(message.context);
  if (context == client->contexts.end()) return "a stream in a context that does not exist";
  if (client->streams.size() >= kMaxStreams) return "too many streams";
  Stream stream{&context->second, message.stream, message.priority, false, {}};
  const bool fresh = client->streams.emplace(message.stream, std::move(stream)).second;
  return fresh ? nullptr : "a stream number that is in use";
}

const char* Engine::stream_destroy(Client* client, const StreamDestroy& message) {
  const auto found = client->streams.find(message.stream);
  if (found == client->streams.end()) return nullptr;
  found->second.closing = true;
  if (found->second.queue.empty()) client->streams.erase(found);
  return nullptr;
}

const char* Engine::mem_reserve(Client* client, const MemReserve& message) {
  if (message.kind > static_cast<uint32_t>(MemKind::kContext)) return "an unknown kind of memory";
  MemReply reply{};
  reply.request = message.request;
  const auto kind = static_cast<MemKind>(message.kind);
  // What a context occupies is the profile's, whatever the client says.
  const uint64_t bytes = kind == MemKind::kContext ? profile_->context_bytes : message.bytes;
  if (message.device >= gpus_.size()) {
    reply.status = kInvalidDevice;
  } else if (bytes == 0) {
    reply.status = kInvalidValue;
  } else if (kind != MemKind::kContext && faults_.refuse_reservation()) {
    reply.status = kOutOfMemory;
  } else if (!gpus_[message.device].ledger().reserve(last_allocation_ + 1, client->connection,
                                                     bytes, kind)) {
    reply.status = kOutOfMemory;
  } else {
    reply.allocation = ++last_allocation_;
  }
  client->replies.add(Type::kMemReply, reply);
  return nullptr;
}

const char* Engine::mem_release(Client* client, const MemRelease& message) {
  for (Gpu& gpu : gpus_) {
    if (gpu.ledger().release(message.allocation, client->connection)) break;
  }
  return nullptr;
}

const char* Engine::mem_info(Client* client, const MemInfo& message) {
  if (message.device >= gpus_.size()) return "a device that does not exist";
  const Ledger& ledger = gpus_[message.device].ledger();
  client->replies.add(Type::kMemInfoReply, MemInfoReply{{}, message.request, ledger.free_bytes(),
                                                        ledger.total_bytes()});
  return nullptr;
}

const char* Engine::query(Client* client, const Query& message) {
  if (message.what > 1) return "an unknown query";
  QueryReply reply{};
  reply.request = message.request;
  client->replies.add_text(reply, message.what == 0 ? status_json() : nvml_json());
  return nullptr;
}

const char* Engine::idle(Client* client, const Idle& message) {
  flush(&client->replies, client);  // answers to what came before in this packet count
  if (message.received > client->sent_packets) return "an IDLE that counts packets never sent";
  if (message.received < client->sent_packets) return nullptr;
  client->busy = false;
  client->deadline_ns = message.deadline_ns;
  return nullptr;
}

const char* Engine::submit(Client* client, const Submit& message) {
  if (message.kind > static_cast<uint32_t>(OpKind::kMemOpWait)) return "an unknown operation kind";
  if (message.op <= client->last_op) return "an operation number that does not increase";
  if (!sensible(message.flops_per_block) || !sensible(message.bytes_per_block)) {
    return "flops or bytes that are not a number from 0";
  }
  if (client->ops.size() >= kMaxLiveOps) return "more operations than the device can queue";
  client->last_op = message.op;

  const auto stream = client->streams.find(message.stream);
  const bool known = stream != client->streams.end() && !stream->second.closing &&
                     stream->second.context->number == message.context;
  const uint32_t poison = known ? stream->second.context->poison : kInvalidHandle;
  if (poison != kSuccess) {
    client->events.add(Type::kDone, Done{{}, message.op, now_ns_, now_ns_, poison, 0});
    return nullptr;
  }

  std::unique_ptr<Op> op = make_op(&stream->second, message);
  for (uint32_t i = 0; i < message.dep_count; ++i) {
    const auto dep = client->ops.find(message.dep[i]);
    if (dep == client->ops.end()) continue;
    dep->second->dependents.push_back(op.get());
    ++op->pending_deps;
  }
  stream->second.queue.push_back(op.get());
  Op* submitted = op.get();
  client->ops.emplace(submitted->id, std::move(op));
  make_ready_if_free(submitted);
  return nullptr;
}

std::unique_ptr<Op> Engine::make_op(Stream* stream, const Submit& message) {
  auto op = std::make_unique<Op>();
  op->id = message.op;
  op->stream = stream;
  op->context = stream->context;
  op->client = stream->context->client;
  op->kind = static_cast<OpKind>(message.kind);
  op->name = text_of(message.name);
  op->needs_body = message.needs_body != 0;
  op->bytes = message.bytes;
  if (op->kind == OpKind::kKernel) {
    op->kernel = {message.grid_blocks, message.block_threads, message.flops_per_block,
                  message.bytes_per_block};
    op->bytes = kernel_bytes(message);
    op->fault = faults_.next_kernel(op->name);
    // A kernel that fails or hangs writes nothing.
    if (op->fault != FaultKind::kNone) op->needs_body = false;
  } else if (op->kind == OpKind::kCopyHtoD || op->kind == OpKind::kCopyDtoH) {
    op->slowness = faults_.next_copy_factor();
  }
  return op;
}

const char* Engine::body(Client* client, const Body& message) {
  const auto found = client->ops.find(message.op);
  if (found == client->ops.end()) return nullptr;  // cancelled meanwhile
  Op* op = found->second.get();
  if (!op->started || !op->needs_body || op->body_done) return "a BODY that nothing STARTed";
  if (waits_.count(op)) return "a second BODY for one START";
  if (op->kind == OpKind::kMemOpWait && message.wait && message.status == kSuccess) {
    // Ask again soon, then ever more rarely: an eighth of the time it has waited, 20 us to 1 ms.
    const uint64_t waited_ns = now_ns_ - op->start_ns;
    op->retry_ns = now_ns_ + std::min<uint64_t>(std::max<uint64_t>(waited_ns / 8, 20'000),
                                                1'000'000);
    waits_.insert(op);
    return nullptr;
  }
  op->body_done = true;
  op->status = message.status;
  if (op->kind >= OpKind::kHostFunc) instant_.insert(op);
  return nullptr;
}

}  // namespace tandem::softgpu
