// One look at a state page, copied once and made safe to use.
//
// The job may write anything there at any time. Whatever it wrote, a Snapshot keeps these promises:
// counters never go back, counts and byte figures fit int64, the wait reason is a WaitReason, times
// that must be in the past are, and figures are consistent (nobody waiting: no reason and no
// start). A value outside these bounds becomes the nearest allowed one.
#pragma once

#include <array>
#include <cstdint>

#include "daemon/shared.h"
#include "dag/phases.h"

namespace tandem::daemon {

struct Snapshot {
  uint64_t process_id = 0;
  bool busy = false;
  uint32_t live_slots = 0;
  uint64_t open_segments = 0;
  uint64_t device_bytes = 0;
  uint64_t peak_bytes = 0;
  uint64_t alloc_count = 0;
  uint64_t refused_count = 0;
  uint64_t refused_by[shm::kRefusalCount] = {};  // by shm::Refusal
  // Ticket of the waiting request for memory; 0 = none, and then the rest is 0, too.
  uint64_t memory_ticket = 0;
  uint64_t memory_wanted_bytes = 0;
  uint32_t memory_round = 0;  // round of its last attempt, which failed
  bool memory_of_quota = false;
  bool memory_alone = false;
  uint64_t swappable_bytes = 0;  // part of device_bytes; swapped_bytes of these are on the host
  uint64_t swapped_bytes = 0;
  uint32_t swap_done = 0;  // the newest order that has ended, and how
  shm::SwapOutcome swap_outcome = shm::SwapOutcome::kNone;
  uint64_t swap_out_bytes = 0;  // copied to the host so far, and the time that took
  uint64_t swap_out_ns = 0;
  uint64_t swap_in_bytes = 0;  // and back
  uint64_t swap_in_ns = 0;
  uint64_t filed_bytes = 0;  // of swappable_bytes, in files, until copied back
  uint32_t waiting_threads = 0;
  shm::WaitReason wait_reason = shm::WaitReason::kNone;
  uint64_t wait_since_ns = 0;
  uint64_t wait_total_ns[shm::kWaitReasonCount] = {};
  uint64_t launches = 0;
  uint64_t steps = 0;
  uint64_t last_step_ns = 0;
  uint64_t phase_hash = 0;
  uint64_t begun_phases = 0;
  uint64_t critical_until_ns = 0;
  bool listens = false;               // the program wants to be told before a pause
  uint32_t pause_ready = 0;           // number of the newest pause that the program is ready for
  uint64_t iteration_peak_bytes = 0;  // most held since the first marked iteration ended,
  uint64_t iteration_end_bytes = 0;   // and most held at the end of one
  std::array<uint64_t, shm::kLimitKindCount> stopped{};  // at how many marks its limit stopped it
  uint64_t linger_ns = 0;
  uint32_t in_set = 0;   // no stream that moves with the process has work outside; 0 = not known
  uint32_t in_turn = 0;  // number of the instruction since which that holds; 0 = not known
  uint32_t following_streams = 0;
  uint32_t staying_streams[shm::kStayReasonCount] = {};  // by shm::StayReason
  bool runs_graphs = false;                              // graphs do not move to the set
  uint64_t set_switches = 0;
  bool ungated = false;
  uint32_t capturing = 0;
  uint64_t helper_tick_ns = 0;
  uint64_t presence_busy_until_ns = 0;
  uint32_t doorbell = 0;

  // From the poller, not from the page.
  uint64_t records = 0;
  uint64_t dropped_records = 0;
  uint64_t iterations = 0;    // ends: marked ones, or those found before the first mark
  uint64_t iteration_ns = 0;  // the usual length; 0 = not known
  uint64_t iteration_launches = 0;
  // Latency class only, once the process is idle and no longer counts as busy: within these times
  // half, and nine tenths, of its gaps are over. 0 = not known.
  uint64_t gap_p50_ns = 0;
  uint64_t gap_p90_ns = 0;
  uint64_t iteration_bytes = 0;  // device_bytes at the newest end, marked or found; 0 = none yet
  bool marks_requests = false;   // it marks its requests, or did: only marked ones count
  uint64_t work_ns = 0;          // predicted GPU time of all submissions
  uint64_t step_work_ns = 0;     // work_ns at the end of the newest iteration, marked or found
  uint64_t timed_count = 0;      // submissions whose GPU time is known
  dag::PhaseShares phases;
  uint64_t exclusive_ns = 0;
  uint64_t shared_ns = 0;
  uint64_t even_ns = 0;
};

// Converts record ticks to attach-clock nanoseconds by what the job says; 0 if that is not
// possible.
struct TickClock {
  uint64_t ns_per_tick_q32 = 0;
  uint64_t base_ns = 0;
  uint64_t base_ticks = 0;

  uint64_t to_ns(uint64_t ticks, uint64_t now_ns) const;  // never after now_ns
};

// Looks at one process repeatedly. Shims take the lowest free slot, so most looks end a little
// after the last slot ever used: with a hundred idle processes, slots are most of the poller's
// cost. Every kFullLookEvery-th look is a full one, which finds a slot used out of order.
class Looker {
 public:
  static constexpr uint32_t kFullLookEvery = 16;
  static constexpr uint32_t kLookAhead = 16;

  // Updates `snapshot`, which is that of the previous look. Never touches a ring.
  void look(const Pages& pages, uint64_t now_ns, Snapshot* snapshot);

 private:
  void look_at_slots(const Pages& pages, Snapshot* snapshot);

  uint32_t looks_ = 0;
  uint32_t used_slots_ = 0;  // one past the last slot seen in use
};

TickClock tick_clock(const Pages& pages);

// The device memory that a process says it holds, without and with what it has asked the driver
// for.
struct MemoryClaim {
  uint64_t process_id = 0;
  uint64_t resident_bytes = 0;
  uint64_t taken_bytes = 0;
};
MemoryClaim claim_now(const Pages& pages);

// True if something happened that a scheduler cares about: busy or idle, a thread began or ended
// waiting, a step, a phase, the doorbell, fail-open.
bool notable(const Snapshot& before, const Snapshot& after);

// A continuing wait in line for memory is reported in steps of this length, so that a long line is
// quiet.
inline constexpr uint64_t kLineStepNs = 500'000'000;

// True if the two looks differ for whoever keeps figures of all processes. Ignores figures that
// grow by themselves and those that change only together with others.
bool differs(const Snapshot& one, const Snapshot& other);

}  // namespace tandem::daemon
