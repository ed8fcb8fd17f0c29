#include "turns.h"

#include <algorithm>

namespace tandem::softgpu {
namespace {

constexpr uint32_t kFirstServer = 3'000'000;  // parties of MPS servers come after single contexts

bool any_running(const std::vector<Op*>& kernels) {
  return std::any_of(kernels.begin(), kernels.end(), [](const Op* op) { return op->sms > 0; });
}

}  // namespace

Turns::Party Turns::party_of(const Context& context) {
  const Client& client = *context.client;
  if (client.mps_server != 0) return {kFirstServer + client.mps_server, 0};
  return {client.id, context.number};
}

void Turns::forget(const Context& context) {
  // The number may come back with another context, which must then pay for its switch.
  if (context.client->mps_server == 0 && active_ == party_of(context)) active_->second = kNever;
}

bool Turns::has_kernel(const std::vector<Op*>& kernels, const Party& party) const {
  return std::any_of(kernels.begin(), kernels.end(),
                     [&](const Op* op) { return party_of(*op->context) == party; });
}

// The first party after the active one, in the order of their numbers, that has a kernel.
const Context* Turns::next_in_turn(const std::vector<Op*>& kernels) const {
  const Context* first = nullptr;
  const Context* after = nullptr;
  for (const Op* op : kernels) {
    const Context* context = op->context;
    const Party party = party_of(*context);
    if (active_ == party) continue;
    if (!first || party < party_of(*first)) first = context;
    if (active_ && party < *active_) continue;
    if (!after || party < party_of(*after)) after = context;
  }
  return after ? after : first;
}

const Context* Turns::hand_over(const std::vector<Op*>& kernels, uint64_t now_ns) {
  if (arbitration_.mode == Mode::kMps) return nullptr;
  const Context* next = next_in_turn(kernels);
  others_wait_ = next != nullptr;
  if (!others_wait_) kernel_ended_ = false;
  if (!next || now_ns < switch_until_ns_) return nullptr;
  if (active_ && has_kernel(kernels, *active_)) {
    const bool kernel_end = kernel_ended_ && !any_running(kernels);
    const bool slice_end = now_ns - slice_start_ns_ >= arbitration_.slice_ns;
    if (!kernel_end && !slice_end) return nullptr;
  }
  give_to(*next, kernels, now_ns);
  return next;
}

void Turns::give_to(const Context& next, const std::vector<Op*>& kernels, uint64_t now_ns) {
  const bool first_ever = !active_;
  active_ = party_of(next);
  switch_until_ns_ = now_ns + (first_ever ? 0 : arbitration_.switch_ns);
  slice_start_ns_ = switch_until_ns_;
  kernel_ended_ = false;
  others_wait_ = next_in_turn(kernels) != nullptr;
}

// While others wait and a kernel of this slice has ended, what already runs may end but nothing new
// begins: the slice is over.
bool Turns::may_run(const Op& op, uint64_t now_ns) const {
  if (arbitration_.mode == Mode::kMps) return true;
  if (now_ns < switch_until_ns_ || active_ != party_of(*op.context)) return false;
  return !(others_wait_ && kernel_ended_ && op.sms == 0);
}

uint64_t Turns::next_event_ns(const std::vector<Op*>& kernels) const {
  if (arbitration_.mode == Mode::kMps || kernels.empty() || !active_) return kNever;
  if (!any_running(kernels)) return switch_until_ns_;
  return others_wait_ ? slice_start_ns_ + arbitration_.slice_ns : kNever;
}

}  // namespace tandem::softgpu
