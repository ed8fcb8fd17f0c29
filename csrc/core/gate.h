// May this thread submit work now? The gate reads the command page, the peers' presence and the
// job's own slots, and waits until the answer is yes or nobody is left to give it.
//
// Rules
// 1. The open path is a handful of relaxed loads; nothing is written unless the gate word changed.
// 2. Every wait ends: the gate opens, the daemon's socket closes (`lost`), its tick becomes older
//    than stale_ns, or, for the window, the GPU makes no progress for kWindowPatienceNs. Then the
//    window grows, by twice as much each time, until the GPU moves on.
// 3. Whatever shared memory says, each value is read once and clamped here.
// 4. The window bounds the work that a more urgent job finds in its way. So a busy stream gets its
//    next segment only when at most one segment's time of the previous one is left. Submitted
//    earlier it could not start anyway, and with kernels longer than a segment it would put a whole
//    further kernel in the way.
// 5. A signal handled on a waiting thread lets it past a closed gate and past urgent peers, for
//    kPassSubmissions submissions within kPassNs: handlers such as Python's run only once the
//    thread has returned from its call. Since programs also use timers, the next pass is granted
//    no sooner than kPassEveryNs after. No pass opens the window, and none holds while memory is
//    on the host.
#pragma once

#include <atomic>
#include <cstdint>

#include "always_inline.h"
#include "clock.h"
#include "shm_layout.h"

namespace tandem {

struct Peers {
  // Helper: release when a peer is mapped or gone (null); launching threads: acquire.
  std::atomic<const shm::PresencePage*> page[shm::kPresenceMax];
};

// One thread's permission to pass because of a signal; valid for that thread only.
struct Pass {
  uint64_t since_ns = 0;
  uint32_t left = 0;  // submissions
};

struct Waited {
  uint64_t ns = 0;
  shm::WaitReason reason = shm::WaitReason::kNone;  // of the longest part
};

class Gate {
 public:
  void open(const shm::CommandPage* command, shm::StatePage* state, const Clock* clock);

  // Call before every submission to the stream of `slot`. Returns at once if nothing is in the way.
  // `pass` belongs to the calling thread; without it, no signal lets the thread through.
  ALWAYS_INLINE Waited admit(uint32_t slot, Pass* pass = nullptr) {
    if (__builtin_expect(obstacle(slot) == shm::WaitReason::kNone, 1)) return {};
    return wait(slot, 0, pass);
  }

  // Like admit, for allocating memory. A mark limit delays an allocation, and so does a closed gate
  // if it holds allocations (lanes). No signal lets it through, since others count on that memory.
  Waited admit_memory() {
    if (memory_obstacle() == shm::WaitReason::kNone) return {};
    return wait(kNoSubmission);
  }

  // Like admit, for launching a graph. Under a window only one graph is in flight at a time, over
  // all streams: a graph is long, and nothing is known about it until it ends. `turn` is a number
  // of the calling thread, which must call end_graph_turn afterwards.
  Waited admit_graph(uint32_t slot, uint32_t turn, Pass* pass = nullptr) {
    if (graph_obstacle(slot, turn) == shm::WaitReason::kNone) return {};
    return wait(slot, turn, pass);
  }
  // Ends the turn: the driver accepted the graph into the stream of `slot`, or did not (`taken`).
  void end_graph_turn(uint32_t turn, uint32_t slot, bool taken);

  // What blocks a submission now, kNone if nothing does. `passes`: the thread has a pass.
  [[nodiscard]] ALWAYS_INLINE shm::WaitReason obstacle(uint32_t slot, bool passes = false) {
    const shm::CommandGate& gate = command_->gate;
    const uint32_t word = gate.gate.load(std::memory_order_acquire);  // daemon: release
    const uint32_t flags = gate.flags.load(std::memory_order_relaxed);
    acknowledge(word);
    if (__builtin_expect(flags & shm::kFlagReleased, 0)) return shm::WaitReason::kNone;
    if (!passes && ((word & shm::kGateHold) || is_at_limit())) return shm::WaitReason::kGate;
    if (!passes && (flags & shm::kFlagHonourPresence)) {
      const uint64_t mask = gate.presence_mask.load(std::memory_order_relaxed);
      if (mask && peer_is_busy(mask, nullptr, nullptr)) return shm::WaitReason::kPresence;
    }
    const uint32_t window = gate.window_segments.load(std::memory_order_relaxed);
    if (window && window_is_full(window, slot)) return shm::WaitReason::kWindow;
    return shm::WaitReason::kNone;
  }

  // The daemon is gone: releases everybody who waits for it. Helper thread.
  void lose();
  [[nodiscard]] bool lost() const { return lost_.load(std::memory_order_acquire); }

  // True if the daemon's tick is so old that the daemon must be considered hung.
  [[nodiscard]] bool stale() const;

  // Acknowledges the gate word, for a daemon that waits until the shim has seen the hold.
  void acknowledge(uint32_t word) {
    auto& seen = state_->control.gate_seen;
    if (__builtin_expect(seen.load(std::memory_order_relaxed) != word, 0))
      seen.store(word, std::memory_order_release);
  }

  Peers& peers() { return peers_; }

  // All slots in use are below this index. Slot table: release; here: acquire.
  std::atomic<uint32_t> slot_end{0};

 private:
  static constexpr uint32_t kNoSubmission = ~uint32_t{0};  // in place of a slot

  // True if the process is at the last mark that it may pass for now.
  [[nodiscard]] bool is_at_limit() const {
    const uint64_t limit = command_->gate.mark_limit.load(std::memory_order_relaxed);
    if (__builtin_expect(limit == 0, 1)) return false;
    const auto kind = static_cast<uint32_t>(shm::kind_of(limit));
    const uint64_t stopped = state_->iterations.stopped[kind].load(std::memory_order_relaxed);
    return stopped >= shm::number_of(limit);
  }

  [[nodiscard]] shm::WaitReason memory_obstacle() {
    const uint32_t word = command_->gate.gate.load(std::memory_order_acquire);  // daemon: release
    const uint32_t flags = command_->gate.flags.load(std::memory_order_relaxed);
    if (flags & shm::kFlagReleased) return shm::WaitReason::kNone;
    const uint32_t lane = command_->memory.lane.load(std::memory_order_relaxed);
    const bool is_closed = (word & shm::kGateHold) && (lane & shm::kLaneHolds);
    return is_closed || is_at_limit() ? shm::WaitReason::kGate : shm::WaitReason::kNone;
  }
  [[nodiscard]] bool peer_is_busy(uint64_t mask, uint64_t* until_ns,
                                  const std::atomic<uint64_t>** word) const;
  [[nodiscard]] bool window_is_full(uint32_t window, uint32_t slot) const;
  [[nodiscard]] uint64_t late_enough_ns(uint32_t slot) const;
  [[nodiscard]] shm::WaitReason graph_obstacle(uint32_t slot, uint32_t turn, bool passes = false);
  [[nodiscard]] bool graph_must_wait(uint32_t turn);
  [[nodiscard]] uint64_t graphs_in_flight() const;
  Waited wait(uint32_t slot, uint32_t turn = 0, Pass* pass = nullptr);
  [[nodiscard]] bool let_through(Pass& pass, bool interrupted, uint64_t now_ns) const;
  // Each waits for a moment. True: the thread handled a signal meanwhile.
  bool pause_for(shm::WaitReason reason, uint32_t slot, uint64_t since_ns, bool again);
  bool pause_for_gate(uint32_t slot, uint64_t since_ns);
  bool pause_for_presence();
  bool pause_for_window(uint32_t slot, uint64_t since_ns);
  [[nodiscard]] uint64_t next_predicted_end_ns() const;
  [[nodiscard]] uint64_t passes_by_itself_ns(shm::WaitReason reason, uint32_t slot,
                                             uint64_t since_ns) const;
  [[nodiscard]] uint64_t passed_markers() const;
  void grow_window();

  const shm::CommandPage* command_ = nullptr;
  shm::StatePage* state_ = nullptr;
  const shm::Slot* slots_ = nullptr;
  const Clock* clock_ = nullptr;
  Peers peers_{};
  std::atomic<bool> lost_{false};  // helper: release in lose(); waiters: acquire
  // Room added to a window in which nothing moved; valid while passed_markers() equals stuck_at_.
  // Waiters: relaxed; two that grow the window at once grow it once too often.
  std::atomic<uint64_t> stuck_at_{UINT64_MAX};
  std::atomic<uint64_t> added_room_{0};
  // The thread that is handing a graph to the driver, 0 = none: two threads would not see each
  // other's graphs.
  std::atomic<uint32_t> graph_turn_{0};
  // By slot: the marker after its newest graph. Written by the holder of the turn; release,
  // acquire.
  std::atomic<uint64_t> graph_marker_[shm::kSlotCount]{};
};

}  // namespace tandem
