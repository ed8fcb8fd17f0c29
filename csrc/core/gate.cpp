#include "gate.h"

#include <algorithm>

#include "wait.h"

namespace tandem {
namespace {

using shm::WaitReason;

constexpr uint64_t kSpinNs = 2'000;
constexpr uint64_t kSliceNs = 20'000'000;    // how often a waiter checks for a lost daemon
constexpr uint64_t kVirtualStepNs = 50'000;  // between two looks on the virtual clock
constexpr uint64_t kWakeEarlyNs = 120'000;   // as much as a sleeping thread oversleeps
constexpr uint64_t kWindowSleepNs = 50'000;
constexpr uint64_t kWindowPatienceNs = 250'000'000;
// Enough for the launches of one interrupted library call; then no pass for a while, since programs
// also use timers.
constexpr uint32_t kPassSubmissions = 16;
constexpr uint64_t kPassNs = 10'000'000;
constexpr uint64_t kPassEveryNs = 1'000'000'000;
constexpr uint64_t kDefaultStaleNs = 2'000'000'000;
constexpr uint64_t kMaxStaleNs = 10'000'000'000;
constexpr uint64_t kTickAheadNs = 1'000'000'000;  // further in the future than this is garbage

uint64_t behind(uint64_t now, uint64_t then) { return now > then ? now - then : 0; }

}  // namespace

void Gate::open(const shm::CommandPage* command, shm::StatePage* state, const Clock* clock) {
  command_ = command;
  state_ = state;
  slots_ =
      reinterpret_cast<const shm::Slot*>(reinterpret_cast<const char*>(state) + shm::kSlotsOffset);
  clock_ = clock;
}

void Gate::lose() {
  lost_.store(true, std::memory_order_release);  // pairs with the acquire in lost()
  futex_wake_all(command_->gate.gate);
}

bool Gate::stale() const {
  const uint64_t tick = command_->heartbeat.tick_ns.load(std::memory_order_acquire);
  uint64_t limit = command_->heartbeat.stale_ns.load(std::memory_order_relaxed);
  if (limit == 0 || limit > kMaxStaleNs) limit = kDefaultStaleNs;
  const uint64_t now = clock_->now_ns();
  return behind(now, tick) > limit || behind(tick, now) > kTickAheadNs;
}

bool Gate::peer_is_busy(uint64_t mask, uint64_t* until_ns,
                        const std::atomic<uint64_t>** word) const {
  const uint64_t now = clock_->now_ns();
  for (; mask; mask &= mask - 1) {
    const shm::PresencePage* peer =
        peers_.page[__builtin_ctzll(mask)].load(std::memory_order_acquire);
    if (!peer) continue;
    const uint64_t until = peer->busy_until_ns.load(std::memory_order_acquire);  // peer: release
    if (until <= now) continue;
    if (until_ns) *until_ns = until;
    if (word) *word = &peer->busy_until_ns;
    return true;
  }
  return false;
}

// When the stream may get its next segment: one segment's time before the previous one is predicted
// to end. 0 = now, since the stream has nothing on the GPU.
uint64_t Gate::late_enough_ns(uint32_t slot) const {
  if (slot >= slot_end.load(std::memory_order_acquire)) return 0;
  const shm::Slot& own = slots_[slot];
  if (own.issued.load(std::memory_order_relaxed) <= own.done.load(std::memory_order_acquire))
    return 0;
  const uint64_t lead = command_->gate.segment_ns.load(std::memory_order_relaxed);
  return behind(own.predicted_end_ns.load(std::memory_order_relaxed), lead);
}

bool Gate::window_is_full(uint32_t window, uint32_t slot) const {
  const uint32_t end = slot_end.load(std::memory_order_acquire);
  uint64_t unfinished = 0;
  for (uint32_t i = 0; i < end; ++i) {
    const uint64_t done = slots_[i].done.load(std::memory_order_acquire);  // the GPU, or the helper
    const uint64_t issued = slots_[i].issued.load(std::memory_order_relaxed);
    if (issued > done) unfinished += issued - done;
  }
  if (unfinished < window && late_enough_ns(slot) <= clock_->now_ns()) return false;
  const bool stuck = stuck_at_.load(std::memory_order_relaxed) == passed_markers();
  return !stuck || unfinished >= window + added_room_.load(std::memory_order_relaxed);
}

WaitReason Gate::graph_obstacle(uint32_t slot, uint32_t turn, bool passes) {
  const WaitReason reason = obstacle(slot, passes);
  if (reason != WaitReason::kNone) return reason;
  const shm::CommandGate& gate = command_->gate;
  const bool windowed = gate.window_segments.load(std::memory_order_relaxed) != 0 &&
                        !(gate.flags.load(std::memory_order_relaxed) & shm::kFlagReleased);
  return windowed && graph_must_wait(turn) ? WaitReason::kWindow : WaitReason::kNone;
}

// Takes the turn if it need not wait. As with segments, a stalled GPU makes room.
bool Gate::graph_must_wait(uint32_t turn) {
  const bool stuck = stuck_at_.load(std::memory_order_relaxed) == passed_markers();
  const uint64_t room = stuck ? added_room_.load(std::memory_order_relaxed) : 0;
  uint32_t holder = 0;
  const bool mine = graph_turn_.compare_exchange_strong(holder, turn, std::memory_order_acquire) ||
                    holder == turn;
  if (graphs_in_flight() + !mine <= room) return false;
  if (mine) graph_turn_.store(0, std::memory_order_release);
  return true;
}

void Gate::end_graph_turn(uint32_t turn, uint32_t slot, bool taken) {
  if (taken && slot < shm::kSlotCount) {
    const uint64_t issued = slots_[slot].issued.load(std::memory_order_acquire);
    const bool open = slots_[slot].open.load(std::memory_order_acquire) != 0;
    // The value stays the same from marker to marker and is stored only when it changes: the
    // entries of threads that launch graphs in streams of their own share cache lines.
    const uint64_t marker = issued + open;
    if (graph_marker_[slot].load(std::memory_order_relaxed) != marker)
      graph_marker_[slot].store(marker, std::memory_order_release);
  }
  if (graph_turn_.load(std::memory_order_relaxed) == turn)
    graph_turn_.store(0, std::memory_order_release);
}

// Counts streams rather than graphs: two graphs in one stream run one after the other anyway.
uint64_t Gate::graphs_in_flight() const {
  const uint32_t end = slot_end.load(std::memory_order_acquire);
  uint64_t count = 0;
  for (uint32_t i = 0; i < end; ++i) {
    const shm::Slot& slot = slots_[i];
    const uint64_t done = slot.done.load(std::memory_order_acquire);
    if (graph_marker_[i].load(std::memory_order_acquire) <= done) continue;
    // A slot with nothing outstanding was settled by other means than this marker.
    const bool idle = slot.open.load(std::memory_order_acquire) == 0 &&
                      slot.issued.load(std::memory_order_acquire) <= done;
    if (!idle) ++count;
  }
  return count;
}

// The GPU may be waiting for work that only this thread would submit.
void Gate::grow_window() {
  const uint64_t passed = passed_markers();
  const bool again = stuck_at_.exchange(passed, std::memory_order_relaxed) == passed;
  const uint64_t room = again ? added_room_.load(std::memory_order_relaxed) : 0;
  added_room_.store(std::min<uint64_t>(std::max<uint64_t>(room * 2, 1), uint64_t{1} << 20),
                    std::memory_order_relaxed);
}

uint64_t Gate::passed_markers() const {
  const uint32_t end = slot_end.load(std::memory_order_acquire);
  uint64_t passed = 0;
  for (uint32_t i = 0; i < end; ++i) passed += slots_[i].done.load(std::memory_order_relaxed);
  return passed;
}

Waited Gate::wait(uint32_t slot, uint32_t turn, Pass* pass) {
  shm::StateWaits& waits = state_->waits;
  const uint64_t start = clock_->now_ns();
  uint64_t spent[shm::kWaitReasonCount] = {};
  uint64_t now = start, reason_since = start;
  bool interrupted = false, passes = false, again = false;
  const auto look = [&] {
    if (slot == kNoSubmission) return memory_obstacle();
    return turn ? graph_obstacle(slot, turn, passes) : obstacle(slot, passes);
  };
  WaitReason last = WaitReason::kNone;
  waits.since_ns.store(start, std::memory_order_relaxed);
  waits.reason.store(static_cast<uint32_t>(look()), std::memory_order_relaxed);
  // release: whoever counts this waiter also sees its start and its reason.
  waits.waiting_threads.fetch_add(1, std::memory_order_release);
  // A thread wants the GPU: tell the daemon now instead of at its next poll.
  state_->control.doorbell.fetch_add(1, std::memory_order_release);
  futex_wake_all(state_->control.doorbell);
  for (;;) {
    passes = pass && let_through(*pass, interrupted, now);
    const WaitReason reason = look();
    if (reason == WaitReason::kNone || lost()) break;
    if (stale()) {
      state_->control.ungated.store(1, std::memory_order_relaxed);
      break;
    }
    if (reason != last) {
      reason_since = now;
      waits.reason.store(static_cast<uint32_t>(reason), std::memory_order_relaxed);
    }
    last = reason;
    interrupted |= pause_for(reason, slot, reason_since, again);
    again = true;
    const uint64_t after = clock_->now_ns();
    spent[static_cast<uint32_t>(reason)] += after - now;
    now = after;
  }
  if (passes) pass->left = turn ? 0 : pass->left - 1;  // a graph is long
  for (uint32_t i = 0; i < shm::kWaitReasonCount; ++i) {
    if (spent[i]) waits.total_ns[i].fetch_add(spent[i], std::memory_order_relaxed);
  }
  waits.waiting_threads.fetch_sub(1, std::memory_order_release);
  const auto longest = std::max_element(spent, spent + shm::kWaitReasonCount) - spent;
  return {now - start, static_cast<WaitReason>(longest)};
}

bool Gate::let_through(Pass& pass, bool interrupted, uint64_t now_ns) const {
  // With memory on the host the thread would only wait elsewhere.
  if (state_->swap.swapped_bytes.load(std::memory_order_relaxed) != 0) return false;
  if (interrupted && behind(now_ns, pass.since_ns) >= kPassEveryNs)
    pass = {now_ns, kPassSubmissions};
  return pass.left && behind(now_ns, pass.since_ns) < kPassNs;
}

bool Gate::pause_for(WaitReason reason, uint32_t slot, uint64_t since_ns, bool again) {
  if (reason == WaitReason::kWindow && behind(clock_->now_ns(), since_ns) > kWindowPatienceNs) {
    grow_window();
    return false;
  }
  if (clock_->is_virtual()) {
    clock_->wait_for_change(kVirtualStepNs, passes_by_itself_ns(reason, slot, since_ns), again);
    return false;
  }
  if (reason == WaitReason::kGate) return pause_for_gate(slot, since_ns);
  if (reason == WaitReason::kPresence) return pause_for_presence();
  return reason == WaitReason::kWindow && pause_for_window(slot, since_ns);
}

// The next time at which the obstacle may go away although nobody writes anything: by time alone.
uint64_t Gate::passes_by_itself_ns(WaitReason reason, uint32_t slot, uint64_t since_ns) const {
  const uint64_t now = clock_->now_ns();
  uint64_t next = now + kSliceNs;
  const auto at = [&](uint64_t ns) {
    if (ns > now) next = std::min(next, ns);
  };
  if (reason == WaitReason::kPresence) {
    uint64_t until = 0;
    if (peer_is_busy(command_->gate.presence_mask.load(std::memory_order_relaxed), &until, nullptr))
      at(until);
  } else if (reason == WaitReason::kWindow) {
    at(late_enough_ns(slot));
    at(since_ns + kWindowPatienceNs + 1);
  }
  return next;
}

bool Gate::pause_for_gate(uint32_t slot, uint64_t since_ns) {
  if (behind(clock_->now_ns(), since_ns) < kSpinNs) {
    cpu_pause();
    return false;
  }
  const uint32_t word = command_->gate.gate.load(std::memory_order_acquire);
  // The word also changes with the mark limit.
  const WaitReason now = slot == kNoSubmission ? memory_obstacle() : obstacle(slot);
  return now == WaitReason::kGate && futex_wait(command_->gate.gate, word, kSliceNs);
}

bool Gate::pause_for_presence() {
  uint64_t until = 0;
  const std::atomic<uint64_t>* word = nullptr;
  const uint64_t mask = command_->gate.presence_mask.load(std::memory_order_relaxed);
  if (!peer_is_busy(mask, &until, &word)) return false;
  const uint64_t left = behind(until, clock_->now_ns());
  if (left <= kWakeEarlyNs) {
    cpu_pause();
    return false;
  }
  // The peer wakes this word when it moves the end closer.
  return futex_wait(low_half(*word), static_cast<uint32_t>(until),
                    std::min(left - kWakeEarlyNs, kSliceNs));
}

// No futex is woken when the GPU writes: sleep until shortly before the predicted end, spin around
// it, and once it is overdue look every 50 us.
bool Gate::pause_for_window(uint32_t slot, uint64_t since_ns) {
  const uint64_t now = clock_->now_ns();
  const uint64_t late_enough = late_enough_ns(slot);
  const uint64_t end = late_enough > now ? late_enough : next_predicted_end_ns();
  if (end > now + kWakeEarlyNs)
    return clock_->sleep_until_ns(std::min(end - kWakeEarlyNs, now + kSliceNs));
  if (behind(now, std::max(end, since_ns)) < kWakeEarlyNs) {
    cpu_pause();
    return false;
  }
  return clock_->sleep_until_ns(now + kWindowSleepNs);
}

uint64_t Gate::next_predicted_end_ns() const {
  const uint32_t end = slot_end.load(std::memory_order_acquire);
  uint64_t next = UINT64_MAX;
  for (uint32_t i = 0; i < end; ++i) {
    const shm::Slot& slot = slots_[i];
    if (slot.issued.load(std::memory_order_relaxed) <= slot.done.load(std::memory_order_relaxed))
      continue;
    next = std::min(next, slot.predicted_end_ns.load(std::memory_order_relaxed));
  }
  return next == UINT64_MAX ? 0 : next;
}

}  // namespace tandem
