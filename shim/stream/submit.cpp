#include "submit.h"

#include "capture.h"
#include "durations.h"
#include "faults.h"
#include "helper.h"
#include "inside.h"
#include "markers.h"
#include "observe.h"
#include "presence.h"
#include "segments.h"
#include "slots.h"
#include "thread_state.h"
#include "timing.h"
#include "wire.h"

namespace tandem::shim {
namespace {

// Launches of a thread between two samples of settled functions. Prime: iterations of as many launches,
// or of a part of that, would have the same ones measured again and again.
constexpr uint32_t kSampleEvery = 1021;
// From here on it is worth asking for the kinds of a copy's pointers: within the device it takes a
// fraction of the time over the link, and goes on when a call without a stream has returned.
constexpr uint64_t kAskBytes = 256 * 1024;

// What is known of a function decides how long its segment may get, and whether to measure it.
void look_up_duration(Channel& channel, const Submission& submission, Ticket* ticket) {
  Duration* duration =
      g_durations.find(DurationTable::key_of(submission.object, submission.blocks));
  if (!duration) {
    ticket->close_after = true;
    return;
  }
  const uint32_t seen = duration->seen.load(std::memory_order_relaxed);
  if (seen < kSamplesWanted) duration->seen.store(seen + 1, std::memory_order_relaxed);
  ticket->close_after = seen < kSamplesWanted;
  ticket->est_ns = duration->ns.load(std::memory_order_relaxed);
  // What overlaps its predecessor is never measured, and would be stale for ever.
  if (duration->is_stale() && !submission.programmatic) ticket->record_flags = shm::kRecordStale;
  const bool settled = duration->samples.load(std::memory_order_relaxed) >= kSamplesSettled;
  // Counted whether or not the helper has read the first samples yet, which is a matter of chance.
  const bool in_turn = ++g_thread.launches % kSampleEvery == 0;
  const bool wanted = settled ? in_turn : duration->is_due();
  if (ticket->est_ns == 0) ticket->est_ns = segment_ns(channel);
  if (!wanted || submission.programmatic || channel.observe || any_capture() ||
      ticket->slot == kNoSlot) {
    return;
  }
  const StreamSlot& slot = channel.streams[ticket->slot];
  const Inside inside(&channel, ticket->slot);
  const TimedIn where{slot.context.load(std::memory_order_relaxed),
                      slot.home.load(std::memory_order_relaxed),
                      slot.device.load(std::memory_order_relaxed)};
  ticket->timing = begin_timing(where, as_stream(submission.stream), duration);
}

bool is_windowed(const Channel& channel) {
  return channel.command->gate.window_segments.load(std::memory_order_relaxed) != 0;
}

// What is not measured goes by its bytes.
Ticket estimated(Ticket ticket, const Submission& submission) {
  ticket.direction = submission.direction;
  if (ticket.direction == Direction::kUnknown && submission.source &&
      submission.bytes >= kAskBytes) {
    ticket.direction = direction_between(submission.object, submission.source);
  }
  ticket.est_ns = transfer_estimate_ns(submission.bytes, ticket.direction);
  return ticket;
}

// What the record of a copy says beside the usual.
Submission completed(const Ticket& ticket, Submission submission) {
  // It has no grid: that place is its source's, for daemons that know.
  if (submission.kind == shm::RecordKind::kCopy &&
      (ticket.channel->features & wire::kFeatureOrder)) {
    submission.blocks = static_cast<uint32_t>(submission.source);
    submission.threads = static_cast<uint32_t>(submission.source >> 32);
  }
  // From the device and without a stream it has ended when the call returns. One to the device need
  // not have: its bytes may be on their way from a staging buffer.
  if (submission.blocks_caller && ticket.direction == Direction::kFromDevice)
    submission.record_flags |= shm::kRecordHostWaited;
  return submission;
}

void record_submission(const Ticket& ticket, const Submission& submission, uint64_t ticks) {
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
    record.value = (common & kContextNumber) | static_cast<uint64_t>(ticket.direction) |
                   submission.sample;
  });
}

// Programmatic launches are never measured, so each counts as a whole segment, which is mostly too much:
// theirs get longer.
uint64_t close_at_ns(const Channel& channel, const StreamSlot& slot) {
  const uint64_t length = segment_ns(channel);
  return slot.programmatic.load(std::memory_order_relaxed) ? 4 * length : length;
}

void count(const Ticket& ticket, const Submission& submission, uint64_t now_ns) {
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
  if (full || (ticket.close_after && !submission.programmatic) ||
      !is_for_others(slot, submission.stream)) {
    close_segment(channel, ticket.slot);
  }
}

// Of what the driver took: to the daemon and the peers.
void tell(const Ticket& ticket, const Submission& submission) {
  Channel& channel = *ticket.channel;
  const uint64_t ticks = g_clock.ticks();
  const uint64_t now_ns = g_clock.ns(ticks);
  record_submission(ticket, submission, ticks);
  if (channel.observe) return;
  if (submission.blocks_caller && !leaves_host_out(ticket.direction)) {
    show_idle_if_so(channel, now_ns);
    return;
  }
  show_busy(channel, now_ns);
  if (ticket.slot != kNoSlot) count(ticket, submission, now_ns);
  wake_helper();
}

void tell_transfer(const Ticket& ticket, const Submission& submission) {
  const Ticket known = estimated(ticket, submission);
  tell(known, completed(known, submission));
}

}  // namespace

Ticket prepare(Channel& found, const Submission& submission) {
  Channel* channel = &found;
  Ticket ticket;
  if (any_capture() && submission.stream != kLegacyStream &&
      !planted(Fault::kWaitInCapture) && is_capturing(as_stream(submission.stream))) {
    return ticket;  // becomes a graph node; gated when that graph is launched
  }
  ticket.slot = slot_of(*channel, submission.stream);
  if (submission.blocks_caller) close_open_segments(*channel);
  if (!channel->observe && (!this_thread_captures() || planted(Fault::kWaitInCapture)) &&
      !(planted(Fault::kSkipGate) && submission.kind == shm::RecordKind::kMemset)) {
    for (;;) {
      const Waited waited =
          submission.alone
              ? channel->gate.admit_graph(ticket.slot, thread_id(), &g_thread.pass)
              : channel->gate.admit(ticket.slot, &g_thread.pass);
      if (waited.ns) record_wait(*channel, waited);
      if (!swap::wait_until_open()) break;
      // Whoever had to wait for memory has to ask the gate again: others may have the GPU by then, and another
      // daemon may say so.
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

void count_submission(Channel& channel, const Submission& submission) {
  Ticket ticket;
  ticket.channel = &channel;
  ticket.slot = slot_of(channel, submission.stream);
  ticket.close_after = true;
  tell(ticket, submission);
}

void finish(const Ticket& ticket, const Submission& submission, bool taken) {
  if (ticket.timing)
    end_timing(ticket.timing, as_stream(submission.stream), taken);
  if (taken) {
    if (submission.measured) tell(ticket, submission);
    else tell_transfer(ticket, submission);
  }
  if (submission.alone) ticket.channel->gate.end_graph_turn(thread_id(), ticket.slot, taken);
}

}  // namespace tandem::shim
