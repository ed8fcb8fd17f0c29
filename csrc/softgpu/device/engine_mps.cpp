// MPS servers and their clients. A server is a connection without work of its own. The contexts of
// its clients share each GPU in space (turns.h) and share its faults.
#include "engine.h"

namespace tandem::softgpu {
namespace {

constexpr size_t kMaxMpsClients = 60;  // per server, as on recent architectures

}  // namespace

const char* Engine::join_mps(Client* client, const JoinMps& message) {
  if (!client->contexts.empty() || client->mps_server != 0) return "a JOIN_MPS that is not first";
  JoinReply reply{};
  const auto server = mps_servers_.find(message.server);
  const bool as_device = message.server == 0 && mode_ == Mode::kMps;
  if (!as_device && server == mps_servers_.end()) {
    reply.status = kMpsConnectionFailed;
  } else if (!as_device && server->second->mps_fault) {
    reply.status = kMpsServerNotReady;
  } else if (!as_device && mps_client_count(message.server) >= kMaxMpsClients) {
    reply.status = kMpsMaxClientsReached;
  } else {
    client->mps_server = message.server;
    client->mps_priority = message.priority;
    for (uint32_t i = 0; i < kMaxDevices; ++i) {
      client->memory_limit_bytes[i] = message.memory_limit_bytes[i];
    }
  }
  client->replies.add(Type::kJoinReply, reply);
  return nullptr;
}

const char* Engine::mps_terminate(Client* server, const MpsTerminate& message) {
  for (auto& [id, client] : participants_) {
    const bool its_own = client->mps_server == server->id;
    if (its_own && client->pid == static_cast<int32_t>(message.pid)) {
      end_mps_client(client, kMpsClientTerminated);
    }
  }
  return nullptr;
}

size_t Engine::mps_client_count(uint32_t server) const {
  size_t count = 0;
  for (const auto& [id, client] : participants_) count += client->mps_server == server ? 1 : 0;
  return count;
}

// Ends only this client: its work is cancelled and every call in its contexts fails from now on. It
// is told at once, not in its turn: whatever ends a client comes from outside the simulation.
void Engine::end_mps_client(Client* client, uint32_t status) {
  client->fate = status;
  for (auto& [number, context] : client->contexts) {
    if (context.poison != kSuccess) continue;
    context.poison = status;
    client->replies.add(Type::kFault, Fault{{}, number, status, 0});
    cancel_all(&context, status);
  }
  flush(&client->replies, client);
}

// A server takes no new clients until those that the fault hit have gone.
void Engine::note_mps_fault(const Client& client, uint32_t status) {
  const auto server = mps_servers_.find(client.mps_server);
  if (server == mps_servers_.end() || server->second->mps_fault) return;
  server->second->mps_fault = true;
  server->second->replies.add(Type::kFault, Fault{{}, 0, status, 0});
  flush(&server->second->replies, server->second);
}

void Engine::leave_mps(const Client& gone) {
  if (gone.role == Role::kMpsServer) {
    mps_servers_.erase(gone.id);
    for (auto& [id, client] : participants_) {
      if (client->mps_server == gone.id) end_mps_client(client, kMpsRpcFailure);
    }
    return;
  }
  const auto server = mps_servers_.find(gone.mps_server);
  if (server == mps_servers_.end() || !server->second->mps_fault) return;
  if (mps_client_count(gone.mps_server) > 0) return;
  server->second->mps_fault = false;
  server->second->replies.add(Type::kFault, Fault{{}, 0, kSuccess, 0});
  flush(&server->second->replies, server->second);
}

}  // namespace tandem::softgpu
