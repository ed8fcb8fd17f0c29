#include "submit.h"

#include "inside.h"
#include "submit_path.h"
#include "timing.h"
#include "wire.h"

namespace tandem::shim {
namespace {

// From this size on it is worth asking for the kinds of a copy's pointers: a copy within the device
// takes a fraction of the time of one over the link, and goes on after a call without a stream has
// returned.
constexpr uint64_t kAskBytes = 256 * 1024;

// Estimates by its bytes what is not measured.
Ticket estimated(Ticket ticket, const Submission& submission) {
  ticket.direction = submission.direction;
  if (ticket.direction == Direction::kUnknown && submission.source &&
      submission.bytes >= kAskBytes) {
    ticket.direction = direction_between(submission.object, submission.source);
  }
  ticket.est_ns = transfer_estimate_ns(submission.bytes, ticket.direction);
  return ticket;
}

// Adds what the record of a copy has beyond the usual.
Submission completed(const Ticket& ticket, Submission submission) {
  // A copy has no grid: for daemons that know, those fields hold its source.
  if (submission.kind == shm::RecordKind::kCopy &&
      (ticket.channel->features & wire::kFeatureOrder)) {
    submission.blocks = static_cast<uint32_t>(submission.source);
    submission.threads = static_cast<uint32_t>(submission.source >> 32);
  }
  // A copy from the device without a stream has ended when the call returns. A copy to the device
  // need not have: its bytes may be on their way from a staging buffer.
  if (submission.blocks_caller && ticket.direction == Direction::kFromDevice)
    submission.record_flags |= shm::kRecordHostWaited;
  return submission;
}

}  // namespace

namespace path {

TimingPair* measure(Channel& channel, uint32_t index, uint64_t stream, Duration* duration) {
  const StreamSlot& slot = channel.streams[index];
  const Inside inside(&channel, index);
  const TimedIn where{slot.context.load(std::memory_order_relaxed),
                      slot.home.load(std::memory_order_relaxed),
                      slot.device.load(std::memory_order_relaxed)};
  return begin_timing(where, as_stream(stream), duration);
}

void tell_transfer(const Ticket& ticket, const Submission& submission) {
  const Ticket known = estimated(ticket, submission);
  tell(known, completed(known, submission));
}

}  // namespace path

Ticket prepare(Channel& channel, const Submission& submission) {
  return path::before(channel, submission);
}

void finish(const Ticket& ticket, const Submission& submission, bool taken) {
  path::after(ticket, submission, taken);
}

void count_submission(Channel& channel, const Submission& submission) {
  Ticket ticket;
  ticket.channel = &channel;
  ticket.slot = slot_of(channel, submission.stream);
  ticket.close_after = true;
  path::tell(ticket, submission);
}

}  // namespace tandem::shim
