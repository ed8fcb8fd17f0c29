// Contexts, streams and memory: what clients create, and what is refused.
#include <algorithm>

#include "engine.h"

namespace tandem::softgpu {
namespace {

// Far above what a program needs. A client that exceeds them is broken and must not exhaust the
// process.
constexpr size_t kMaxContexts = 4096;
constexpr size_t kMaxStreams = 65536;
constexpr size_t kMaxAllocations = 1 << 18;

// An MPS client may be limited to less memory than the device has.
bool beyond_limit(const Client& client, const Gpu& gpu, uint64_t bytes) {
  const uint64_t limit = client.memory_limit_bytes[gpu.device().index];
  const uint64_t used = gpu.ledger().used_bytes(client.connection);
  return limit != kNever && (used > limit || bytes > limit - used);
}

}  // namespace

const char* Engine::context_create(Client* client, const ContextCreate& message) {
  if (message.device >= gpus_.size()) return "a context on a device that does not exist";
  if (message.sm_percent == 0 || message.sm_percent > 100) return "an SM percentage not in 1..100";
  if (client->contexts.size() >= kMaxContexts) return "too many contexts";
  Context context{client, message.context, message.device, message.sm_percent, kSuccess};
  const bool lost = gpus_[message.device].health().lost;
  context.poison = lost ? uint32_t{kDeviceUnavailable} : client->fate;
  if (context.poison != kSuccess) {
    tell(client, Type::kFault, Fault{{}, message.context, context.poison, 0});
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
  Stream stream;
  stream.context = &context->second;
  stream.number = message.stream;
  stream.priority = message.priority;
  const bool fresh = client->streams.emplace(message.stream, std::move(stream)).second;
  return fresh ? nullptr : "a stream number that is in use";
}

const char* Engine::stream_confine(Client* client, const StreamConfine& message) {
  const auto found = client->streams.find(message.stream);
  if (found == client->streams.end()) return "SMs for a stream that does not exist";
  Stream& stream = found->second;
  const SmSet sms = sm_set_of(message.sms);
  const SmSet all = first_sms(gpus_[stream.context->gpu].device().sm_count);
  if (sms.none() || (sms & ~all).any()) return "SMs that the device does not have";
  if (stream.first) return "SMs for a stream that has work";
  stream.confined = true;
  stream.sms = sms;
  return nullptr;
}

const char* Engine::stream_destroy(Client* client, const StreamDestroy& message) {
  const auto found = client->streams.find(message.stream);
  if (found == client->streams.end()) return nullptr;
  found->second.closing = true;
  if (!found->second.first) client->streams.erase(found);
  return nullptr;
}

const char* Engine::mem_reserve(Client* client, const MemReserve& message) {
  if (message.kind > static_cast<uint32_t>(MemKind::kContext)) return "an unknown kind of memory";
  MemReply reply{};
  reply.request = message.request;
  const auto kind = static_cast<MemKind>(message.kind);
  // The profile decides what a context occupies, whatever the client says.
  const uint64_t bytes = kind == MemKind::kContext ? profile_->context_bytes : message.bytes;
  if (message.device >= gpus_.size()) {
    reply.status = kInvalidDevice;
  } else if (gpus_[message.device].health().lost) {
    reply.status = kDeviceUnavailable;
  } else if (bytes == 0) {
    reply.status = kInvalidValue;
  } else if (client->allocations >= kMaxAllocations) {
    reply.status = kOutOfMemory;
  } else if (kind != MemKind::kContext && faults_.refuse_reservation()) {
    reply.status = kOutOfMemory;
  } else if (beyond_limit(*client, gpus_[message.device], bytes)) {
    reply.status = kOutOfMemory;
  } else if (!gpus_[message.device].ledger().reserve(last_allocation_ + 1, client->connection,
                                                     bytes)) {
    reply.status = kOutOfMemory;
  } else {
    reply.allocation = ++last_allocation_;
    ++client->allocations;
    reply.unmappable = kind == MemKind::kVmm && faults_.refuse_map();
  }
  client->replies.add(Type::kMemReply, reply);
  return nullptr;
}

const char* Engine::mem_release(Client* client, const MemRelease& message) {
  for (Gpu& gpu : gpus_) {
    if (!gpu.ledger().release(message.allocation, client->connection)) continue;
    --client->allocations;
    break;
  }
  return nullptr;
}

const char* Engine::mem_retain(Client* client, const MemRetain& message) {
  MemReply reply{};
  reply.request = message.request;
  reply.status = kInvalidValue;
  for (Gpu& gpu : gpus_) {
    if (!gpu.ledger().retain(message.allocation, client->connection)) continue;
    reply.status = kSuccess;
    reply.allocation = message.allocation;
  }
  client->replies.add(Type::kMemReply, reply);
  return nullptr;
}

const char* Engine::mem_info(Client* client, const MemInfo& message) {
  if (message.device >= gpus_.size()) return "a device that does not exist";
  const Ledger& ledger = gpus_[message.device].ledger();
  uint64_t free_bytes = ledger.free_bytes();
  const uint64_t limit = client->memory_limit_bytes[gpus_[message.device].device().index];
  if (limit != kNever) {
    const uint64_t used = std::min(limit, ledger.used_bytes(client->connection));
    free_bytes = std::min(free_bytes, limit - used);
  }
  client->replies.add(Type::kMemInfoReply,
                      MemInfoReply{{}, message.request, free_bytes, ledger.total_bytes()});
  return nullptr;
}

}  // namespace tandem::softgpu
