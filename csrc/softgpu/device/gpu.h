// One modelled GPU: which kernels have the SMs, what the copy engines do, and when operations end.
//
// Rules
// 1. Only operations whose stream order and dependencies are satisfied get here (`add`).
// 2. turns.h decides who has the compute engine. A preempted kernel keeps its remaining work.
// 3. placement.h decides which SMs each runnable kernel gets. A kernel that gets none waits.
// 4. Progress is fluid: a kernel's duration is that of roofline.h at its present share, and is
//    recomputed whenever anything starts or ends.
// 5. HtoD and DtoH have an engine each, one copy at a time. DtoD and memsets only use bandwidth.
// 6. An operation ends when its modelled work is done and its body has been executed.
//
// Owned by the engine. It has no clock: times are arguments and never go back.
#pragma once

#include <array>
#include <map>
#include <vector>

#include "busy_window.h"
#include "health.h"
#include "ledger.h"
#include "model.h"
#include "profile.h"
#include "timeline.h"
#include "turns.h"

namespace tandem::softgpu {

class Gpu {
 public:
  Gpu(const DeviceInfo& device, const Arbitration& arbitration, Timeline* timeline);

  void add(Op* op);
  void remove(Op* op, uint64_t now_ns);  // cancelled, or its client is gone
  void forget(const Context& context) { turns_.forget(context); }

  // Call this when BODY has told what the whole operation costs.
  void learn_cost(Op* op, uint64_t now_ns) const;

  // Takes out the operations that have ended by now_ns: kernels, then DtoD copies and memsets, then
  // copies to and from the host.
  std::vector<Op*> collect(uint64_t now_ns);
  // Decides what runs from now_ns on; returns the operations that start for the first time.
  std::vector<Op*> schedule(uint64_t now_ns);
  // When this GPU's next own event is due; kNever if there is none.
  uint64_t next_event_ns() const;

  const DeviceInfo& device() const { return device_; }
  Ledger& ledger() { return ledger_; }
  const Ledger& ledger() const { return ledger_; }
  Health& health() { return health_; }
  const Health& health() const { return health_; }
  // How busy one client kept the GPU; null if that client never used it.
  const BusyWindow* compute_busy_of(uint32_t connection) const;
  void forget_client(uint32_t connection);
  const BusyWindow& copy_busy(size_t engine) const { return copy_busy_[engine]; }
  const BusyWindow& compute_busy() const { return compute_busy_; }
  const BusyWindow& memory_busy() const { return memory_busy_; }

 private:
  void hand_over(uint64_t now_ns);
  void begin(Op* op, uint64_t now_ns, std::vector<Op*>* started);
  void set_sms(Op* op, const SmSet& place, uint64_t now_ns);
  void set_duration(Op* op, double duration_ns, uint64_t now_ns);
  void progress(Op* op, uint64_t now_ns) const;
  void feed_copy_engines(uint64_t now_ns, std::vector<Op*>* started);
  void share(uint64_t now_ns);
  void note_busy(uint64_t now_ns);
  void note_computing(std::vector<uint32_t> computing, uint64_t now_ns);
  bool take_if_ended(Op* op, uint64_t now_ns);

  DeviceInfo device_;
  Turns turns_;
  Timeline* timeline_;
  Ledger ledger_;
  Health health_;
  BusyWindow compute_busy_, memory_busy_;
  std::array<BusyWindow, 2> copy_busy_;
  std::map<uint32_t, BusyWindow> busy_by_;  // by connection
  std::vector<uint32_t> computing_;         // connections whose kernels run now

  std::vector<Op*> runnable_;                    // kernels of the current turn, during schedule()
  std::vector<Op*> movers_;                      // DtoD and memsets, all running
  std::array<std::vector<Op*>, 2> copy_queues_;  // HtoD, DtoH; the first one runs
};

}  // namespace tandem::softgpu
