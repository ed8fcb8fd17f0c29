// The iterations of one process: by its marks where it marks them, else as found in what its
// threads submit; and their phases. Used by the poller's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "daemon/snapshot.h"
#include "dag/iterations.h"
#include "dag/phases.h"
#include "dag/usual.h"
#include "shm_layout.h"

namespace tandem::daemon {

// True if the record marks the end of an iteration.
bool is_step(const shm::Record& record);
// The predicted GPU time of a submission, ns, 0 = not known. What a job says about its kernels is a
// claim, and is clamped.
uint64_t work_of(const shm::Record& record);

// The usual iteration between two step marks.
class MarkedSteps {
 public:
  void take(const shm::Record& record);
  // Records are missing: the current iteration is not measured.
  void gap() { measuring_ = false; }

  uint64_t duration() const { return usual_.ticks(); }  // 0 = not known
  uint64_t launches() const { return launches_; }       // launches of all threads
  uint64_t last() const { return since_; }              // ticks of the last mark; 0 = none

 private:
  bool measuring_ = false;  // since the last mark
  uint64_t since_ = 0;      // ticks
  uint64_t launched_ = 0;   // since then
  dag::Usual usual_;
  uint64_t launches_ = 0;
};

class Iterating {
 public:
  // Takes what a ring brought, in order, with ticks in nanoseconds. `dropped`: records before it
  // are missing.
  void take(uint32_t ring, const shm::Record* records, size_t count, bool dropped);
  // Call after all rings: brings the snapshot's iterations and phases up to date.
  void tell(Snapshot* snapshot);
  // Ticks at which the newest reported iteration ended, or 0.
  uint64_t last_end() const;

 private:
  void take_found(uint32_t ring, const shm::Record& record);
  const dag::IterationFinder* choose();

  // One per thread that has launched something, created at its first launch. The last ring has
  // none: several threads share it, and nothing repeats in a mixture.
  std::unique_ptr<dag::IterationFinder> finders_[shm::kThreadRingCount];
  uint32_t chosen_ = 0;     // the thread whose iterations count as the process's
  uint64_t ends_seen_ = 0;  // how many of its ends have been counted already
  uint64_t steps_seen_ = 0;
  // Predicted GPU time of what all threads have submitted since the newest end that was found,
  // except for the few launches by which the end was recognised.
  uint64_t work_since_ = 0;
  MarkedSteps marked_;
  dag::PhaseFinder phases_;
};

}  // namespace tandem::daemon
