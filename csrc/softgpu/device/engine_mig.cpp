// MIG layouts that an administrator changes while the device process runs.
//
// Contexts know their GPU by its number, and a change renumbers all GPUs, so no client may be at
// work. On a real GPU only the device that is changed must be idle.
#include <algorithm>

#include "engine.h"

namespace tandem::softgpu {

void Engine::make_gpus() {
  gpus_.clear();
  for (DeviceInfo& info : gpus_of(*profile_, static_cast<uint32_t>(mig_.size()), mig_)) {
    info.has_mig_on = has_mig_on_[info.index];
    info.is_usable = info.is_usable && (info.gpu_instance || !info.has_mig_on);
    gpus_.emplace_back(info, arbitration_, &timeline_);
  }
}

const char* Engine::mig_change(Client* client, const MigChange& message) {
  if (client->role != Role::kQuery) return "a layout of MIG on a working connection";
  if (message.device >= mig_.size()) return "a layout of a device that does not exist";
  if (message.verb > static_cast<uint32_t>(MigVerb::kDestroyCompute)) return "an unknown change";
  MigReply reply{};
  reply.request = message.request;
  reply.status = static_cast<uint32_t>(change_mig(client->uid, message, &reply.gpu_instance));
  client->replies.add(Type::kMigReply, reply);
  return nullptr;
}

MigStatus Engine::change_mig(uint32_t uid, const MigChange& message, uint32_t* created) {
  const MigTable* table = mig_table(profile_->name);
  if (!table) return MigStatus::kNoMig;
  if (uid != 0) return MigStatus::kNotPermitted;  // NVIDIA's MIG user guide: administrators only
  const bool someone_works = std::any_of(clients_.begin(), clients_.end(), [](const auto& entry) {
    const Client& client = *entry.second;
    const bool may_work = client.role == Role::kWorker || client.role == Role::kMpsServer;
    return may_work || !client.contexts.empty() || client.allocations > 0;
  });
  if (someone_works) return MigStatus::kInUse;
  auto& instances = mig_[message.device];
  const auto verb = static_cast<MigVerb>(message.verb);
  if (verb == MigVerb::kSetMode) {
    if (!message.value && !instances.empty()) return MigStatus::kInUse;
    has_mig_on_[message.device] = message.value != 0;
  } else if (!has_mig_on_[message.device]) {
    return MigStatus::kNoMig;
  } else if (verb == MigVerb::kCreate) {
    const auto profile = std::find_if(table->profiles.begin(), table->profiles.end(),
                                      [&](const auto& one) { return one.id == message.value; });
    if (profile == table->profiles.end()) return MigStatus::kNotFound;
    if (!add_mig_instance(*profile, message.start, &instances)) return MigStatus::kNoRoom;
    *created = instances.back().number;
  } else {
    const auto found = std::find_if(instances.begin(), instances.end(),
                                    [&](const auto& one) { return one.number == message.value; });
    if (found == instances.end()) return MigStatus::kNotFound;
    if (verb == MigVerb::kDestroy) {
      if (found->has_compute) return MigStatus::kInUse;
      instances.erase(found);
    } else {
      const bool wanted = verb == MigVerb::kCreateCompute;
      if (found->has_compute == wanted) return wanted ? MigStatus::kNoRoom : MigStatus::kNotFound;
      found->has_compute = wanted;
    }
  }
  make_gpus();
  return MigStatus::kDone;
}

}  // namespace tandem::softgpu
