// Decides who has the compute engine of one GPU, and keeps the kernels that are ready for it. A
// *party* shares the engine in space: it is one context, or all contexts of the clients of one MPS
// server. Parties take turns. A turn ends when its party has no kernel, or after slice_ns, but the
// latter only while another party has one. The next party in the order of their numbers then gets
// the engine after switch_ns. In `mps` mode all contexts are one party. An H200 behaves this way,
// see docs/driver-facts.md, part `windows`.
//
// Only kernels of the party whose turn it is have SMs, so code that deals with running kernels
// looks at these alone, however many others wait.
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
  bool remove(Op* kernel);  // false if it was not here
  void forget(const Context& context);

  // Kernels of the party whose turn it is, ready or running, in RunsBefore order.
  const std::vector<Op*>& kernels() const;
  // Removes the kernels that have ended.
  void kernels_ended(const std::vector<Op*>& ended);
  bool may_run(uint64_t now_ns) const { return now_ns >= switch_until_ns_; }

  // next_due returns a context of the party whose turn must begin now; null if nothing changes.
  // `give_to` begins the turn: by then everything must have left the SMs, and until switch_until_ns
  // nobody computes.
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
  Waiting waiting_;  // parties with kernels, including the active one
  // Map nodes kept for reuse: parties soon have kernels again.
  std::vector<Waiting::node_type> spare_;
  std::optional<Party> active_;
  uint64_t switch_until_ns_ = 0;
  uint64_t slice_start_ns_ = 0;
  bool others_wait_ = false;
};

}  // namespace tandem::softgpu
