// What is done before and after a submission, inline: for a launch, the compiler sees which fields
// its Submission never uses, and leaves out what only copies and graphs need. A driver's launch
// leaves little of the shim in the caches, so the cost is in instructions and the lines that they
// occupy (tests/shim/test_launch_instructions.py).
#pragma once

#include <cuda.h>

#include <cstdint>

#include "always_inline.h"
#include "capture.h"
#include "durations.h"
#include "faults.h"
#include "helper.h"
#include "inside.h"
#include "markers.h"
#include "observe.h"
#include "presence.h"
#include "sampling.h"
#include "segments.h"
#include "slots.h"
#include "submit.h"
#include "thread_state.h"
#include "timing.h"

namespace tandem::shim::path {

// Launches of a thread between two samples of settled functions. A prime: otherwise, if iterations
// have that many launches or a divisor of it, the same launches would be measured every time.
inline constexpr uint32_t kSampleEvery = 1021;

// Starts measuring a launch. Null: not now.
TimingPair* measure(Channel& channel, uint32_t slot, uint64_t stream, Duration* duration);

// Like `tell`, for a copy or memset, which has no entry for its duration: estimated by its bytes
// and direction.
void tell_transfer(const Ticket& ticket, const Submission& submission);

// What is known of a function decides how long its segment may get, and whether to measure the
// launch.
ALWAYS_INLINE void look_up_duration(Channel& channel, const Submission& submission,
                                    Ticket* ticket) {
  Duration* duration =
      g_durations.find(DurationTable::key_of(submission.object, submission.blocks));
  if (__builtin_expect(!duration, 0)) {
    ticket->close_after = true;
    return;
  }
  const uint32_t seen = duration->seen.load(std::memory_order_relaxed);
  if (__builtin_expect(seen < kSamplesWanted, 0))
    duration->seen.store(seen + 1, std::memory_order_relaxed);
  ticket->close_after = seen < kSamplesWanted;
  ticket->est_ns = duration->ns.load(std::memory_order_relaxed);
  // A launch that overlaps its predecessor is never measured, so it would be stale for ever.
  if (duration->is_stale() && !submission.programmatic) ticket->record_flags = shm::kRecordStale;
  const bool settled = duration->samples.load(std::memory_order_relaxed) >= kSamplesSettled;
  // Counted whether or not the helper has read the first samples yet, which is a matter of chance.
  const bool in_turn = ++g_thread.launches == kSampleEvery;
  if (in_turn) g_thread.launches = 0;
  const bool wanted = __builtin_expect(settled, 1) ? in_turn : duration->is_due();
  if (__builtin_expect(ticket->est_ns == 0, 0)) ticket->est_ns = segment_ns(channel);
  if (__builtin_expect(!wanted, 1) || submission.programmatic || channel.observe || any_capture() ||
      ticket->slot == kNoSlot) {
    return;
  }
  ticket->timing = measure(channel, ticket->slot, submission.stream, duration);
}

ALWAYS_INLINE bool is_windowed(const Channel& channel) {
  return channel.command->gate.window_segments.load(std::memory_order_relaxed) != 0;
}

ALWAYS_INLINE void record_submission(const Ticket& ticket, const Submission& submission,
                                     uint64_t ticks) {
  uint64_t common = 0;
  if (__builtin_expect(ticket.slot != kNoSlot, 1))
    common = ticket.channel->streams[ticket.slot].common.load(std::memory_order_relaxed);
  fill_record(*ticket.channel, [&](shm::Record& record) {
    record.ticks = ticks;
    record.kind = static_cast<uint8_t>(submission.kind);
    record.flags = submission.record_flags | ticket.record_flags | static_cast<uint8_t>(common);
    record.slot = static_cast<uint16_t>(ticket.slot);
    record.thread = thread_id();
    record.stream = submission.stream;
    record.object = submission.object;
    record.bytes = submission.bytes;
    record.grid_blocks = submission.blocks;
    record.block_threads = submission.threads;
    record.duration_ns = ticket.est_ns;
    record.value =
        (common & kContextNumber) | static_cast<uint64_t>(ticket.direction) | submission.sample;
  });
}

// Programmatic launches are never measured, so each is estimated as a whole segment, which is
// mostly too much; their segments may therefore get longer.
ALWAYS_INLINE uint64_t close_at_ns(const Channel& channel, const StreamSlot& slot) {
  const uint64_t length = segment_ns(channel);
  return slot.programmatic.load(std::memory_order_relaxed) ? 4 * length : length;
}

ALWAYS_INLINE void count(const Ticket& ticket, const Submission& submission, uint64_t now_ns) {
  Channel& channel = *ticket.channel;
  StreamSlot& slot = channel.streams[ticket.slot];
  const uint64_t open_ns = add_to_segment(channel, ticket.slot, ticket.est_ns, now_ns);
  slot.submitter.store(thread_id(), std::memory_order_relaxed);
  if (submission.kind == shm::RecordKind::kLaunch || submission.kind == shm::RecordKind::kGraph) {
    slot.launches.store(slot.launches.load(std::memory_order_relaxed) + 1,
                        std::memory_order_relaxed);
  }
  if (submission.programmatic && !slot.programmatic.load(std::memory_order_relaxed))
    slot.programmatic.store(true, std::memory_order_relaxed);
  const bool full = open_ns >= close_at_ns(channel, slot);
  if (__builtin_expect(full || (ticket.close_after && !submission.programmatic) ||
                           !is_for_others(slot, submission.stream),
                       0)) {
    close_segment(channel, ticket.slot);
  }
}

// Reports what the driver took to the daemon and the peers.
ALWAYS_INLINE void tell(const Ticket& ticket, const Submission& submission) {
  Channel& channel = *ticket.channel;
  const uint64_t ticks = g_clock.ticks();
  const uint64_t now_ns = g_clock.ns(ticks);
  record_submission(ticket, submission, ticks);
  if (__builtin_expect(channel.observe, 0)) return;
  if (submission.blocks_caller && !leaves_host_out(ticket.direction)) {
    show_idle_if_so(channel, now_ns);
    return;
  }
  show_busy(channel, now_ns);
  if (__builtin_expect(ticket.slot != kNoSlot, 1)) count(ticket, submission, now_ns);
  wake_helper();
}

ALWAYS_INLINE Ticket before(Channel& found, const Submission& submission) {
  Channel* channel = &found;
  Ticket ticket;
  if (any_capture() && submission.stream != kLegacyStream && !planted(Fault::kWaitInCapture) &&
      is_capturing(as_stream(submission.stream))) {
    return ticket;  // becomes a graph node; gated when that graph is launched
  }
  ticket.slot = slot_of(*channel, submission.stream);
  if (submission.blocks_caller) close_open_segments(*channel);
  if (__builtin_expect(!channel->observe, 1) &&
      (!this_thread_captures() || planted(Fault::kWaitInCapture)) &&
      !(planted(Fault::kSkipGate) && submission.kind == shm::RecordKind::kMemset)) {
    for (;;) {
      const Waited waited =
          submission.alone ? channel->gate.admit_graph(ticket.slot, thread_id(), &g_thread.pass)
                           : channel->gate.admit(ticket.slot, &g_thread.pass);
      if (__builtin_expect(waited.ns != 0, 0)) record_wait(*channel, waited);
      if (!swap::wait_until_open()) break;
      // A thread that had to wait for memory asks the gate again: by then others may have the GPU,
      // and another daemon may be in charge.
      if (Channel* const now = managed_channel()) channel = now;
      ticket.slot = slot_of(*channel, submission.stream);
    }
  }
  ticket.channel = channel;
  prepare_markers(*channel, ticket.slot);
  if (submission.measured) look_up_duration(*channel, submission, &ticket);
  if (submission.alone && is_windowed(*channel)) ticket.close_after = true;
  return ticket;
}

ALWAYS_INLINE void after(const Ticket& ticket, const Submission& submission, bool taken) {
  if (__builtin_expect(ticket.timing != nullptr, 0))
    end_timing(ticket.timing, as_stream(submission.stream), taken);
  if (__builtin_expect(taken, 1)) {
    if (submission.measured) tell(ticket, submission);
    // Copies, so that the originals need not be in memory.
    else tell_transfer(Ticket(ticket), Submission(submission));
  }
  if (submission.alone) ticket.channel->gate.end_graph_turn(thread_id(), ticket.slot, taken);
}

// A kernel, whose arguments are recorded if the daemon asks for that.
template <class Real>
ALWAYS_INLINE CUresult submit_launch(Channel& channel, Submission& submission,
                                     const LaunchArguments& launch, Real real) {
  const Ticket ticket = before(channel, submission);
  const swap::Use use(ticket.channel != nullptr);
  const Inside inside(ticket.channel, ticket.slot);
  const CUresult result = real();
  if (__builtin_expect(!ticket.channel, 0)) return result;
  if (__builtin_expect(is_sampling(*ticket.channel), 0) && result == CUDA_SUCCESS) {
    submission.sample = sample_launch(*ticket.channel, LaunchArguments(launch));
    if (submission.sample) submission.record_flags |= shm::kRecordSampled;
  }
  after(ticket, submission, result == CUDA_SUCCESS);
  return result;
}

// The same without a daemon: memory that a daemon had moved out may still be away.
template <class Real>
ALWAYS_INLINE CUresult submit_unmanaged(Real real) {
  const swap::Use use;
  return real();
}

}  // namespace tandem::shim::path
