#include "daemon/snapshot.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace tandem::daemon {
namespace {

constexpr uint64_t kMaxFigure = INT64_MAX;  // what protobuf, JSON and Python all support
constexpr uint32_t kMaxThreads = 1u << 22;  // the kernel's own limit
constexpr uint32_t kMaxCaptures = 1u << 16;
constexpr uint32_t kMaxStreams = 1u << 16;

__extension__ using Wide = unsigned __int128;

// Relaxed: each figure stands for itself, and the page's writer orders none of them.
template <typename T>
T load(const std::atomic<T>& figure) {
  return figure.load(std::memory_order_relaxed);
}

uint64_t bounded(const std::atomic<uint64_t>& figure) { return std::min(load(figure), kMaxFigure); }

uint64_t in_the_past(const std::atomic<uint64_t>& time_ns, uint64_t now_ns) {
  return std::min(load(time_ns), now_ns);
}

void grow(uint64_t* counter, const std::atomic<uint64_t>& claim) {
  *counter = std::max(*counter, bounded(claim));
}

struct SlotView {
  bool used = false;
  bool live = false;
  uint64_t open_segments = 0;
};

// Reads `done` first and `issued` last, so that work submitted in between shows as busy. `done` may
// be ahead for a moment (the GPU is faster than the store of `issued`), or for ever if the job
// lies: both count as nothing outstanding.
SlotView view(const shm::Slot& slot) {
  SlotView out;
  const uint32_t state = load(slot.state);
  out.used = state != static_cast<uint32_t>(shm::SlotState::kFree);
  out.live = state == static_cast<uint32_t>(shm::SlotState::kLive);
  if (!out.live) return out;
  const uint64_t done = slot.done.load(std::memory_order_acquire);
  const uint64_t open = slot.open.load(std::memory_order_acquire);
  const uint64_t issued = slot.issued.load(std::memory_order_acquire);  // the shim's release
  if (issued > done) out.open_segments = std::min(issued - done, kMaxFigure);
  if (open != 0 && out.open_segments < kMaxFigure) ++out.open_segments;
  return out;
}

void look_at_waits(const shm::StateWaits& waits, uint64_t now_ns, Snapshot* snapshot) {
  snapshot->waiting_threads = std::min(load(waits.waiting_threads), kMaxThreads);
  const uint32_t reason = load(waits.reason);
  const bool waiting = snapshot->waiting_threads != 0;
  snapshot->wait_reason = waiting && reason < shm::kWaitReasonCount
                              ? static_cast<shm::WaitReason>(reason)
                              : shm::WaitReason::kNone;
  snapshot->wait_since_ns = waiting ? in_the_past(waits.since_ns, now_ns) : 0;
  for (uint32_t i = 0; i < shm::kWaitReasonCount; ++i) {
    grow(&snapshot->wait_total_ns[i], waits.total_ns[i]);
  }
}

void look_at_marks(const shm::StateMarks& marks, uint64_t now_ns, Snapshot* snapshot) {
  grow(&snapshot->steps, marks.steps);
  grow(&snapshot->launches, marks.launches);
  grow(&snapshot->begun_phases, marks.begun_phases);
  snapshot->last_step_ns = in_the_past(marks.last_step_ns, now_ns);
  snapshot->phase_hash = load(marks.phase_hash);
  snapshot->critical_until_ns = load(marks.critical_until_ns);
  snapshot->listens = marks.listens.load(std::memory_order_relaxed) != 0;
  snapshot->pause_ready = marks.pause_ready.load(std::memory_order_acquire);
}

void look_at_memory(const shm::StateMemory& memory, Snapshot* snapshot) {
  snapshot->device_bytes = bounded(memory.device_bytes);
  snapshot->peak_bytes = std::max(bounded(memory.peak_bytes), snapshot->device_bytes);
  grow(&snapshot->alloc_count, memory.alloc_count);
  grow(&snapshot->refused_count, memory.refused_count);
}

// Read first: whoever sees that the process stopped also sees what it had submitted and marked by
// then. Pairs with the shim's release.
void look_at_iterations(const shm::StateIterations& iterations, Snapshot* snapshot) {
  for (uint32_t i = 0; i < shm::kLimitKindCount; ++i)
    snapshot->stopped[i] =
        std::min(iterations.stopped[i].load(std::memory_order_acquire), kMaxFigure);
  grow(&snapshot->iteration_end_bytes, iterations.end_bytes);
  grow(&snapshot->iteration_peak_bytes, iterations.peak_bytes);
  snapshot->iteration_peak_bytes =
      std::max(snapshot->iteration_peak_bytes, snapshot->iteration_end_bytes);
}

void look_at_swap(const shm::StateSwap& swap, Snapshot* snapshot) {
  // Read first: whoever sees that an order has ended also sees its effect on the figures. Pairs
  // with the shim's release.
  const uint64_t done = swap.done.load(std::memory_order_acquire);
  snapshot->swappable_bytes = std::min(bounded(swap.swappable_bytes), snapshot->device_bytes);
  snapshot->swapped_bytes = std::min(bounded(swap.swapped_bytes), snapshot->swappable_bytes);
  const auto outcome = static_cast<uint32_t>(done >> 32);
  snapshot->swap_done = static_cast<uint32_t>(done);
  snapshot->swap_outcome = outcome < shm::kSwapOutcomeCount ? static_cast<shm::SwapOutcome>(outcome)
                                                            : shm::SwapOutcome::kNone;
  grow(&snapshot->swap_out_bytes, swap.out_bytes);
  grow(&snapshot->swap_out_ns, swap.out_ns);
  grow(&snapshot->swap_in_bytes, swap.in_bytes);
  grow(&snapshot->swap_in_ns, swap.in_ns);
  // Not bounded by swapped_bytes: memory that comes back counts as on the device before it has been
  // copied there, and its file is needed until then.
  snapshot->filed_bytes = std::min(bounded(swap.filed_bytes), snapshot->swappable_bytes);
}

void look_at_sets(const shm::StateSets& sets, Snapshot* snapshot) {
  // Read first, as in look_at_swap: the work it refers to has ended. Pairs with the shim's release.
  snapshot->in_turn = sets.in_turn.load(std::memory_order_acquire);
  snapshot->in_set = sets.in.load(std::memory_order_acquire);
  snapshot->following_streams = std::min(load(sets.following), kMaxStreams);
  for (uint32_t i = 0; i < shm::kStayReasonCount; ++i)
    snapshot->staying_streams[i] = std::min(load(sets.staying[i]), kMaxStreams);
  snapshot->runs_graphs = load(sets.graphs) != 0;
  grow(&snapshot->set_switches, sets.switches);
}

// A request that changes while it is being read counts as none until the next look.
void look_at_line(const shm::StateMemory& memory, Snapshot* snapshot) {
  const uint64_t ticket = memory.wait_ticket.load(std::memory_order_acquire);  // the shim's release
  // Acquire, so that the second load of the ticket stays after these.
  const uint64_t wanted_bytes =
      std::min(memory.wait_bytes.load(std::memory_order_acquire), kMaxFigure);
  const uint32_t round = memory.wait_round.load(std::memory_order_acquire);
  const uint32_t flags = memory.wait_flags.load(std::memory_order_acquire);
  const bool waits = ticket != 0 && ticket <= kMaxFigure && load(memory.wait_ticket) == ticket;
  snapshot->memory_ticket = waits ? ticket : 0;
  snapshot->memory_wanted_bytes = waits ? wanted_bytes : 0;
  snapshot->memory_round = waits ? round : 0;
  snapshot->memory_of_quota = waits && (flags & shm::kWaitForQuota);
  snapshot->memory_alone = waits && (flags & shm::kWaitsAlone);
}

}  // namespace

void Looker::look_at_slots(const Pages& pages, Snapshot* snapshot) {
  const bool full = looks_++ % kFullLookEvery == 0;
  snapshot->live_slots = 0;
  snapshot->open_segments = 0;
  for (uint32_t i = 0; i < shm::kSlotCount; ++i) {
    if (!full && i >= used_slots_ + kLookAhead) break;
    const SlotView slot = view(pages.slots()[i]);
    if (slot.used) used_slots_ = std::max(used_slots_, i + 1);
    snapshot->live_slots += slot.live ? 1 : 0;
    snapshot->open_segments = std::min(snapshot->open_segments + slot.open_segments, kMaxFigure);
  }
  snapshot->busy = snapshot->open_segments != 0;
}

void Looker::look(const Pages& pages, uint64_t now_ns, Snapshot* snapshot) {
  const shm::StatePage& state = pages.state();
  snapshot->process_id = pages.process_id();
  look_at_iterations(state.iterations, snapshot);
  look_at_sets(state.sets, snapshot);
  look_at_slots(pages, snapshot);
  look_at_memory(state.memory, snapshot);
  for (uint32_t i = 0; i < shm::kRefusalCount; ++i)
    grow(&snapshot->refused_by[i], state.refusals.count[i]);
  look_at_swap(state.swap, snapshot);
  look_at_line(state.memory, snapshot);
  look_at_waits(state.waits, now_ns, snapshot);
  look_at_marks(state.marks, now_ns, snapshot);
  snapshot->linger_ns = bounded(state.control.linger_ns);
  snapshot->ungated = load(state.control.ungated) != 0;
  snapshot->capturing = std::min(load(state.control.capturing), kMaxCaptures);
  snapshot->helper_tick_ns = in_the_past(state.control.helper_tick_ns, now_ns);
  snapshot->doorbell = load(state.control.doorbell);
  // Pairs with the job's release. "In a request" is kNoLimit, so there is no bound to check.
  snapshot->presence_busy_until_ns = pages.presence().busy_until_ns.load(std::memory_order_acquire);
}

MemoryClaim claim_now(const Pages& pages) {
  const shm::StatePage& page = pages.state();
  const uint64_t swapped = bounded(page.swap.swapped_bytes);
  const uint64_t held = bounded(page.memory.device_bytes);
  const uint64_t taken = std::max(held, bounded(page.memory.taken_bytes));
  return {pages.process_id(), held - std::min(held, swapped), taken - std::min(taken, swapped)};
}

TickClock tick_clock(const Pages& pages) {
  const shm::StateControl& control = pages.state().control;
  return {load(control.ns_per_tick_q32), load(control.tick_base_ns), load(control.tick_base)};
}

uint64_t TickClock::to_ns(uint64_t ticks, uint64_t now_ns) const {
  if (ns_per_tick_q32 == 0) return 0;
  const bool later = ticks >= base_ticks;
  const uint64_t distance = later ? ticks - base_ticks : base_ticks - ticks;
  const Wide distance_ns = (static_cast<Wide>(distance) * ns_per_tick_q32) >> 32;
  if (later) return static_cast<uint64_t>(std::min<Wide>(base_ns + distance_ns, now_ns));
  return distance_ns < base_ns ? std::min(base_ns - static_cast<uint64_t>(distance_ns), now_ns) : 0;
}

bool notable(const Snapshot& before, const Snapshot& after) {
  return before.busy != after.busy || before.waiting_threads != after.waiting_threads ||
         before.steps != after.steps || before.phase_hash != after.phase_hash ||
         before.critical_until_ns != after.critical_until_ns || before.listens != after.listens ||
         before.pause_ready != after.pause_ready || before.doorbell != after.doorbell ||
         before.ungated != after.ungated || before.stopped != after.stopped ||
         before.memory_ticket != after.memory_ticket || before.memory_round != after.memory_round;
}

bool differs(const Snapshot& one, const Snapshot& other) {
  const auto in_line = [](const Snapshot& s) {
    return s.wait_total_ns[static_cast<uint32_t>(shm::WaitReason::kMemory)] / kLineStepNs;
  };
  const auto figures = [](const Snapshot& s) {
    return std::tie(s.busy, s.waiting_threads, s.wait_reason, s.exclusive_ns, s.shared_ns,
                    s.launches, s.steps, s.iterations, s.phases.forward, s.phases.backward,
                    s.phases.update, s.gap_p50_ns, s.device_bytes, s.swapped_bytes, s.swap_done,
                    s.filed_bytes, s.capturing, s.even_ns, s.open_segments, s.alloc_count,
                    s.memory_ticket, s.memory_round, s.memory_of_quota, s.memory_alone, s.ungated,
                    s.stopped, s.phase_hash, s.in_set, s.in_turn, s.following_streams,
                    s.runs_graphs, s.set_switches, s.listens, s.pause_ready, s.marks_requests);
  };
  return figures(one) != figures(other) || in_line(one) != in_line(other) ||
         !std::equal(std::begin(one.refused_by), std::end(one.refused_by), other.refused_by) ||
         !std::equal(std::begin(one.staying_streams), std::end(one.staying_streams),
                     other.staying_streams);
}

}  // namespace tandem::daemon
