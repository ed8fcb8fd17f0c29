#include "turns.h"

#include <algorithm>

namespace tandem::softgpu {
namespace {

constexpr uint32_t kFirstServer = 3'000'000;  // parties of MPS servers come after single contexts
constexpr std::pair<uint32_t, uint64_t> kEveryone{0, 0};  // the one party of `mps` mode

bool any_running(const std::vector<Op*>& kernels) {
  return std::any_of(kernels.begin(), kernels.end(), [](const Op* op) { return op->sms > 0; });
}

}  // namespace

Turns::Turns(const Arbitration& arbitration) : arbitration_(arbitration) {
  if (arbitration.mode == Mode::kMps) active_ = kEveryone;
}

Turns::Party Turns::party_of(const Context& context) const {
  if (arbitration_.mode == Mode::kMps) return kEveryone;
  const Client& client = *context.client;
  if (client.mps_server != 0) return {kFirstServer + client.mps_server, 0};
  return {client.id, context.number};
}

void Turns::add(Op* kernel) {
  const Party party = party_of(*kernel->context);
  auto found = waiting_.find(party);
  if (found == waiting_.end() && !spare_.empty()) {
    spare_.back().key() = party;
    found = waiting_.insert(std::move(spare_.back())).position;
    spare_.pop_back();
  } else if (found == waiting_.end()) {
    found = waiting_.try_emplace(party).first;
  }
  std::vector<Op*>& kernels = found->second;
  kernels.insert(std::upper_bound(kernels.begin(), kernels.end(), kernel, RunsBefore()), kernel);
}

bool Turns::remove(Op* kernel) {
  const auto party = waiting_.find(party_of(*kernel->context));
  if (party == waiting_.end()) return false;
  const auto found = std::find(party->second.begin(), party->second.end(), kernel);
  if (found == party->second.end()) return false;
  party->second.erase(found);
  drop_if_empty(party);
  return true;
}

void Turns::drop_if_empty(Waiting::iterator party) {
  if (party->second.empty()) spare_.push_back(waiting_.extract(party));
}

void Turns::forget(const Context& context) {
  if (arbitration_.mode == Mode::kMps || context.client->mps_server != 0) return;
  // The number may be reused by another context, which must then pay for its switch.
  if (active_ == party_of(context)) active_->second = kNever;
}

const std::vector<Op*>& Turns::kernels() const {
  static const std::vector<Op*> none;
  const auto active = active_ ? waiting_.find(*active_) : waiting_.end();
  return active == waiting_.end() ? none : active->second;
}

void Turns::kernels_ended(const std::vector<Op*>& ended) {
  for (Op* kernel : ended) remove(kernel);
}

// A context of the first party after the active one, in the order of their numbers, that has a
// kernel.
const Context* Turns::next_in_turn() const {
  if (waiting_.empty()) return nullptr;
  auto next = active_ ? waiting_.upper_bound(*active_) : waiting_.begin();
  if (next == waiting_.end()) next = waiting_.begin();
  return active_ == next->first ? nullptr : next->second.front()->context;
}

const Context* Turns::next_due(uint64_t now_ns) {
  const Context* next = next_in_turn();
  others_wait_ = next != nullptr;
  if (!next || now_ns < switch_until_ns_) return nullptr;
  const bool slice_end = now_ns - slice_start_ns_ >= arbitration_.slice_ns;
  return kernels().empty() || slice_end ? next : nullptr;
}

void Turns::give_to(const Context& next, uint64_t now_ns) {
  const bool first_ever = !active_;
  active_ = party_of(next);
  switch_until_ns_ = now_ns + (first_ever ? 0 : arbitration_.switch_ns);
  slice_start_ns_ = switch_until_ns_;
  others_wait_ = next_in_turn() != nullptr;
}

uint64_t Turns::next_event_ns() const {
  if (arbitration_.mode == Mode::kMps || waiting_.empty() || !active_) return kNever;
  if (!any_running(kernels())) return switch_until_ns_;
  return others_wait_ ? slice_start_ns_ + arbitration_.slice_ns : kNever;
}

}  // namespace tandem::softgpu
