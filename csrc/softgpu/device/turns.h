// Who has the compute engine of one GPU. A *party* is what shares it in space: one context, or all
// contexts of the clients of one MPS server. Parties take turns: a turn ends when one of its
// kernels ends or after slice_ns, but only while another party has a kernel; the next one, in the
// order of their numbers, gets the engine after switch_ns. In `mps` mode all contexts are one party.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "model.h"
#include "protocol.h"

namespace tandem::softgpu {

struct Arbitration {
  Mode mode = Mode::kTime;
  uint64_t slice_ns = 2'000'000;
  uint64_t switch_ns = 50'000;
};

class Turns {
 public:
  explicit Turns(const Arbitration& arbitration) : arbitration_(arbitration) {}

  // Whose turn begins now: everything else has to leave the SMs. Null when nothing changes.
  const Context* hand_over(const std::vector<Op*>& kernels, uint64_t now_ns);
  // Until then nobody computes.
  uint64_t switch_until_ns() const { return switch_until_ns_; }

  bool may_run(const Op& op, uint64_t now_ns) const;
  void kernel_ended() { kernel_ended_ = true; }
  void forget(const Context& context);
  uint64_t next_event_ns(const std::vector<Op*>& kernels) const;

 private:
  using Party = std::pair<uint32_t, uint64_t>;

  static Party party_of(const Context& context);
  bool has_kernel(const std::vector<Op*>& kernels, const Party& party) const;
  const Context* next_in_turn(const std::vector<Op*>& kernels) const;
  void give_to(const Context& next, const std::vector<Op*>& kernels, uint64_t now_ns);

  Arbitration arbitration_;
  std::optional<Party> active_;
  uint64_t switch_until_ns_ = 0;
  uint64_t slice_start_ns_ = 0;
  bool kernel_ended_ = false;  // in this slice, while others were waiting
  bool others_wait_ = false;
};

}  // namespace tandem::softgpu
