// Who has the compute engine of one GPU, and the kernels that are ready for it. A *party* is what
// shares it in space: one context, or all contexts of the clients of one MPS server. Parties take
// turns: a turn ends when it has no kernel, or after slice_ns, but only while another party has one;
// the next one, in the order of their numbers, gets the engine after switch_ns. In `mps` mode all
// contexts are one party. So an H200 does it, see docs/driver-facts.md, part `windows`.
//
// Only kernels of the party whose turn it is have SMs, so whoever looks at what runs looks at its
// kernels alone, however many others wait.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "model.h"
#include "protocol.h"

namespace tandem::softgpu {

struct Arbitration {
  Mode mode = Mode::kTime;
  uint64_t slice_ns = 2'000'000;
  uint64_t switch_ns = 200'000;  // 137 to 215 us on an H200
};

class Turns {
 public:
  explicit Turns(const Arbitration& arbitration);

  void add(Op* kernel);
  bool remove(Op* kernel);  // false when it was not here
  void forget(const Context& context);

  // Of the party whose turn it is: ready or running, in RunsBefore order.
  const std::vector<Op*>& kernels() const;
  // Those that have ended leave.
  void kernels_ended(const std::vector<Op*>& ended);
  bool may_run(uint64_t now_ns) const { return now_ns >= switch_until_ns_; }

  // Whose turn has to begin now; null while nothing changes. `give_to` begins it: everything has
  // left the SMs by then, and until switch_until_ns nobody computes.
  const Context* next_due(uint64_t now_ns);
  void give_to(const Context& next, uint64_t now_ns);
  uint64_t switch_until_ns() const { return switch_until_ns_; }

  uint64_t next_event_ns() const;

 private:
  using Party = std::pair<uint32_t, uint64_t>;
  using Waiting = std::map<Party, std::vector<Op*>>;

  Party party_of(const Context& context) const;
  const Context* next_in_turn() const;
  void drop_if_empty(Waiting::iterator party);

  Arbitration arbitration_;
  Waiting waiting_;                        // parties with kernels, the active one among them
  std::vector<Waiting::node_type> spare_;  // of parties that had some: they come again soon
  std::optional<Party> active_;
  uint64_t switch_until_ns_ = 0;
  uint64_t slice_start_ns_ = 0;
  bool others_wait_ = false;
};

}  // namespace tandem::softgpu
