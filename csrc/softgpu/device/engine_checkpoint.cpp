// One process checkpoints another:
//
//   RUNNING --lock--> LOCKED --checkpoint--> CHECKPOINTED --restore--> LOCKED --unlock--> RUNNING
//
// A lock holds back the process's calls and waits until those under way have returned and all of
// its work has ended. While the process is checkpointed, others can use its device memory; the
// contents stay in the process all the time.
#include <algorithm>

#include "engine.h"

namespace tandem::softgpu {

const char* Engine::checkpoint(Client* client, const Checkpoint& message) {
  Client* target = worker_of(message.pid);
  if (!target) {
    reply_checkpoint(client, message.request, kInvalidValue, nullptr);
    return nullptr;
  }
  if (client->uid != 0 && client->uid != target->uid) {
    // NVIDIA/cuda-checkpoint#25; according to #41 it reaches the process through /proc.
    reply_checkpoint(client, message.request, kNotPermitted, nullptr);
    return nullptr;
  }
  uint32_t status = kSuccess;
  switch (static_cast<CheckpointVerb>(message.verb)) {
    case CheckpointVerb::kGetState: break;
    case CheckpointVerb::kLock:
      if (target->state == ProcessState::kRunning && target->pending_lock.requester == 0) {
        begin_lock(target, client, message);
        return nullptr;  // answered once it is locked
      }
      status = kIllegalState;
      break;
    case CheckpointVerb::kCheckpoint: status = suspend(target); break;
    case CheckpointVerb::kRestore: status = resume(target); break;
    case CheckpointVerb::kUnlock: status = unlock(target); break;
    default: return "an unknown verb of checkpoints";
  }
  reply_checkpoint(client, message.request, status, target);
  return nullptr;
}

Client* Engine::worker_of(uint32_t pid) {
  for (auto& [id, client] : participants_) {
    if (client->role == Role::kWorker && client->pid == static_cast<int32_t>(pid)) return client;
  }
  return nullptr;
}

void Engine::begin_lock(Client* target, Client* requester, const Checkpoint& message) {
  PendingLock& lock = target->pending_lock;
  lock = {requester->connection, message.request, kNever, false};
  if (message.timeout_ns > 0) lock.deadline_ns = now_ns_ + message.timeout_ns;
  locking_.insert(target->connection);
  // At once, not in the client's turn: the request comes from outside the simulation.
  target->replies.add(Type::kFreeze, Freeze{{}, 1, 0});
  flush(&target->replies, target);
}

const char* Engine::frozen(Client* client, const Frozen&) {
  client->pending_lock.frozen = true;
  return nullptr;
}

void Engine::end_lock(Client* target, uint32_t status) {
  const PendingLock lock = target->pending_lock;
  target->pending_lock = {};
  if (status == kSuccess) {
    target->state = ProcessState::kLocked;
  } else {
    target->replies.add(Type::kFreeze, Freeze{{}, 0, 0});
    flush(&target->replies, target);
  }
  if (Client* requester = find(lock.requester)) {
    reply_checkpoint(requester, lock.request, status, target);
    flush(&requester->replies, requester);
  }
}

// Finds the pending locks whose process has come to rest or whose time is up.
void Engine::look_at_locks() {
  for (auto it = locking_.begin(); it != locking_.end();) {
    Client* target = find(*it);
    const bool at_rest = target && target->pending_lock.frozen && target->ops.size() == 0;
    const bool late = target && target->pending_lock.deadline_ns <= now_ns_;
    if (at_rest) {
      end_lock(target, kSuccess);
    } else if (late) {
      end_lock(target, kNotReady);
    } else if (target) {
      ++it;
      continue;
    }
    it = locking_.erase(it);
  }
}

uint64_t Engine::next_lock_deadline_ns() const {
  uint64_t next = kNever;
  for (const uint32_t connection : locking_) {
    const auto found = clients_.find(connection);
    if (found != clients_.end()) {
      next = std::min(next, found->second->pending_lock.deadline_ns);
    }
  }
  return next;
}

uint32_t Engine::suspend(Client* target) {
  if (target->state != ProcessState::kLocked) return kIllegalState;
  for (Gpu& gpu : gpus_) gpu.ledger().suspend(target->connection);
  target->state = ProcessState::kCheckpointed;
  return kSuccess;
}

// Resumes on all devices or on none.
uint32_t Engine::resume(Client* target) {
  if (target->state != ProcessState::kCheckpointed) return kIllegalState;
  const bool fits = std::all_of(gpus_.begin(), gpus_.end(), [&](const Gpu& gpu) {
    return gpu.ledger().can_resume(target->connection);
  });
  if (!fits) return kOutOfMemory;
  for (Gpu& gpu : gpus_) gpu.ledger().resume(target->connection);
  target->state = ProcessState::kLocked;
  return kSuccess;
}

uint32_t Engine::unlock(Client* target) {
  if (target->state != ProcessState::kLocked) return kIllegalState;
  target->state = ProcessState::kRunning;
  target->replies.add(Type::kFreeze, Freeze{{}, 0, 0});
  flush(&target->replies, target);
  return kSuccess;
}

void Engine::reply_checkpoint(Client* to, uint64_t request, uint32_t status, const Client* of) {
  const auto state = static_cast<uint32_t>(of ? of->state : ProcessState::kRunning);
  to->replies.add(Type::kCheckpointReply, CheckpointReply{{}, request, status, state});
}

}  // namespace tandem::softgpu
