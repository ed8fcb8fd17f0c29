// The path of everything that makes the GPU work: wait until it may go, hand it to the driver,
// count it and record it.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "channel.h"
#include "inside.h"
#include "session.h"
#include "shm_layout.h"
#include "transfers.h"
#include "use.h"

namespace tandem::shim {

struct TimingPair;

struct Submission {
  shm::RecordKind kind = shm::RecordKind::kLaunch;
  uint64_t stream = 0;  // normalised
  uint64_t object = 0;  // function, graph, destination address
  uint64_t source = 0;  // copies: the other address, where the call names one
  uint64_t bytes = 0;
  Direction direction = Direction::kUnknown;
  uint32_t blocks = 0;
  uint32_t threads = 0;
  bool measured = false;  // look `object` up in the duration table; otherwise estimate by bytes
  bool alone = false;  // a graph: if there is a window, only one in flight, in a segment of its own
  bool programmatic = false;  // overlaps its predecessor, so no timing event may come between them
  bool blocks_caller = false;
  uint8_t record_flags = 0;  // in addition to those of its stream
  uint32_t sample = 0;       // launches: where their parameters are recorded
};

// What prepare() found out, for finish().
struct Ticket {
  Channel* channel = nullptr;  // null: not ours to count
  uint32_t slot = 0xffff;
  uint64_t est_ns = 0;
  Direction direction = Direction::kUnknown;
  bool close_after = false;
  uint8_t record_flags = 0;  // in addition to those of the submission
  TimingPair* timing = nullptr;
};

Ticket prepare(Channel& channel, const Submission& submission);
void finish(const Ticket& ticket, const Submission& submission, bool taken);

// Counts one more thing that a call has handed to the driver, besides what it was admitted for.
void count_submission(Channel& channel, const Submission& submission);

// `real` may complete the submission: what a batch moves is looked at only after the driver has
// taken it, so that nothing is read that the driver would not have read.
template <class Real>
CUresult submit(const Submission& submission, Real real) {
  Channel* channel = managed_channel();
  const Ticket ticket = channel ? prepare(*channel, submission) : Ticket{};
  // Not before the gate: no memory could be moved while a thread waits there. A graph node touches
  // no memory.
  const swap::Use use(ticket.channel || !channel);
  const Inside inside(ticket.channel, ticket.slot);  // after all the shim's waits
  const CUresult result = real();
  if (ticket.channel) finish(ticket, submission, result == CUDA_SUCCESS);
  return result;
}

}  // namespace tandem::shim
