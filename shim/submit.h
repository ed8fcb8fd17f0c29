// The path of everything that makes the GPU work: wait until it may go, hand it to the driver, count
// and record it.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "channel.h"
#include "durations.h"
#include "session.h"
#include "shm_layout.h"

namespace tandem::shim {

struct Submission {
  shm::RecordKind kind = shm::RecordKind::kLaunch;
  uint64_t stream = 0;        // normalised
  uint64_t object = 0;        // function, graph, destination address
  uint64_t bytes = 0;
  uint64_t direction = 0;     // copies: 1 to the device, 2 from it, 3 within, 0 not known
  uint32_t blocks = 0;
  uint32_t threads = 0;
  uint64_t est_ns = 0;        // when not measured by function
  bool measured = false;      // look `object` up in the duration table
  bool alone = false;         // a segment by itself (graphs)
  bool programmatic = false;  // overlaps its predecessor: no marker and no event between them
  bool blocks_caller = false;
};

// What prepare() found out, for finish().
struct Ticket {
  Channel* channel = nullptr;  // null: not ours to count
  uint32_t slot = 0xffff;
  uint64_t est_ns = 0;
  bool close_after = false;
  struct TimingPair* timing = nullptr;
  Duration* duration = nullptr;
};

Ticket prepare(Channel& channel, const Submission& submission);
void finish(const Ticket& ticket, const Submission& submission, bool taken);

// Estimates of the two kinds of work that are not measured by function.
uint64_t copy_estimate_ns(uint64_t bytes, uint64_t direction);

template <class Real>
CUresult submit(const Submission& submission, Real real) {
  Channel* channel = managed_channel();
  if (!channel) return real();
  const Ticket ticket = prepare(*channel, submission);
  const CUresult result = real();
  if (ticket.channel) finish(ticket, submission, result == CUDA_SUCCESS);
  return result;
}

}  // namespace tandem::shim
