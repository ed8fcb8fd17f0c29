// What one process's iterations are: where it marks them, by its marks, else as found in what its
// threads submit; and their phases. Of the poller's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "dag/iterations.h"
#include "dag/phases.h"
#include "dag/usual.h"
#include "daemon/snapshot.h"
#include "shm_layout.h"

namespace tandem::daemon {

// The end of an iteration, as marked.
bool is_step(const shm::Record& record);
// The GPU time that a submission is predicted to take, ns, 0 = not known: what a job says of its kernels
// is a claim, and bounded.
uint64_t work_of(const shm::Record& record);

// The usual iteration between two step marks.
class MarkedSteps {
 public:
  void take(const shm::Record& record);
  // Records are missing: what goes on now is not measured.
  void gap() { measuring_ = false; }

  uint64_t duration() const { return usual_.ticks(); }  // 0 = not known
  uint64_t launches() const { return launches_; }  // of all threads
  uint64_t last() const { return since_; }         // ticks of the last mark; 0 = none

 private:
  bool measuring_ = false;  // since the last mark
  uint64_t since_ = 0;      // ticks
  uint64_t launched_ = 0;   // since then
  dag::Usual usual_;
  uint64_t launches_ = 0;
};

class Iterating {
 public:
  // What a ring brought, in order; ticks are nanoseconds. `dropped`: some before it is missing.
  void take(uint32_t ring, const shm::Record* records, size_t count, bool dropped);
  // All rings were read: brings the snapshot's iterations and phases up to date.
  void tell(Snapshot* snapshot);
  // When the newest iteration that was told ended, or 0. Ticks.
  uint64_t last_end() const;

 private:
  void take_found(uint32_t ring, const shm::Record& record);
  const dag::IterationFinder* choose();

  // Of each thread that launched something, since when it did. The last ring is that of all further
  // threads: in a mixture nothing repeats.
  std::unique_ptr<dag::IterationFinder> finders_[shm::kThreadRingCount];
  uint32_t chosen_ = 0;     // the thread whose iterations are the process's
  uint64_t ends_seen_ = 0;  // of them, those that are counted already
  uint64_t steps_seen_ = 0;
  // Predicted GPU time of what all threads have submitted since the newest end that was found, but for
  // the few launches by which it is known.
  uint64_t work_since_ = 0;
  MarkedSteps marked_;
  dag::PhaseFinder phases_;
};

}  // namespace tandem::daemon
