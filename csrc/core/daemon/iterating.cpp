#include "daemon/iterating.h"

#include <algorithm>
#include <utility>

#include "dag/records.h"

namespace tandem::daemon {
namespace {

using shm::RecordKind;

constexpr uint8_t kStepMark = 1;  // TANDEM_MARK_STEP in shim/tandem_mark.h

// False for records that neither iterations nor phases depend on, such as the many segments.
bool concerns(const shm::Record& record) {
  switch (static_cast<RecordKind>(record.kind)) {
    case RecordKind::kSegment:
    case RecordKind::kWait:
    case RecordKind::kEventRecord:
    case RecordKind::kEventWait:
    case RecordKind::kMemOp: return false;
    default: return true;
  }
}

}  // namespace

uint64_t work_of(const shm::Record& record) {
  constexpr uint64_t kLongestNs = 3'600'000'000'000;
  return shm::is_launch(record) ? std::min(record.duration_ns, kLongestNs) : 0;
}

bool is_step(const shm::Record& record) {
  return static_cast<RecordKind>(record.kind) == RecordKind::kMark && record.flags == kStepMark;
}

void MarkedSteps::take(const shm::Record& record) {
  if (shm::is_launch(record)) ++launched_;
  if (dag::is_stale(record)) usual_.renew();
  if (!is_step(record)) return;
  if (measuring_ && record.ticks >= since_) {
    usual_.take(record.ticks - since_);
    launches_ = launched_;
  }
  measuring_ = true;
  since_ = record.ticks;
  launched_ = 0;
}

void Iterating::take(uint32_t ring, const shm::Record* records, size_t count, bool dropped) {
  if (dropped) {
    if (ring < shm::kThreadRingCount && finders_[ring]) finders_[ring]->gap();
    marked_.gap();
    phases_.gap();
  }
  for (size_t i = 0; i < count; ++i) {
    if (!concerns(records[i])) continue;
    marked_.take(records[i]);
    phases_.take(static_cast<uint16_t>(ring), records[i]);
    work_since_ += work_of(records[i]);
    if (ring < shm::kThreadRingCount) take_found(ring, records[i]);
  }
}

void Iterating::take_found(uint32_t ring, const shm::Record& record) {
  std::unique_ptr<dag::IterationFinder>& finder = finders_[ring];
  if (!finder) {
    if (!shm::is_launch(record)) return;
    finder = std::make_unique<dag::IterationFinder>();
  }
  const uint64_t ends = finder->ends();
  finder->take(record);
  if (finder->ends() == ends || ring != chosen_) return;
  work_since_ = 0;
  phases_.end(static_cast<uint16_t>(ring), finder->launches_since_end(), finder->last_end());
}

// Of the threads that have iterations, prefers those in which the host takes part, then the one
// that submits most. A thread that only launches backward passes has iterations too, but they end
// in the middle of the job's.
const dag::IterationFinder* Iterating::choose() {
  const auto rank = [](const dag::IterationFinder& finder) {
    return std::make_pair(finder.has_host(), finder.submitted());
  };
  const dag::IterationFinder* best = finders_[chosen_].get();
  const uint32_t before = chosen_;
  for (uint32_t i = 0; i < shm::kThreadRingCount; ++i) {
    const dag::IterationFinder* other = finders_[i].get();
    if (!other || !other->found()) continue;
    if (best && best->found() && rank(*best) >= rank(*other)) continue;
    best = other;
    chosen_ = i;
  }
  if (chosen_ != before) ends_seen_ = best->ends();
  return best;
}

void Iterating::tell(Snapshot* snapshot) {
  phases_.settle();
  snapshot->phases = phases_.shares();
  const dag::IterationFinder* finder = choose();
  const uint64_t ends = finder ? std::exchange(ends_seen_, finder->ends()) : 0;
  if (snapshot->steps != 0) {
    snapshot->iterations += snapshot->steps - std::exchange(steps_seen_, snapshot->steps);
    snapshot->iteration_ns = marked_.duration();
    snapshot->iteration_launches = marked_.launches();
  } else if (finder) {
    snapshot->iterations += finder->ends() - ends;
    if (finder->ends() != ends)
      snapshot->step_work_ns = snapshot->work_ns - std::min(work_since_, snapshot->work_ns);
    snapshot->iteration_ns = finder->found() ? finder->duration() : 0;
    snapshot->iteration_launches = finder->found() ? finder->launches() : 0;
  }
}

uint64_t Iterating::last_end() const {
  if (steps_seen_ != 0) return marked_.last();
  const dag::IterationFinder* finder = finders_[chosen_].get();
  return finder ? finder->last_end() : 0;
}

}  // namespace tandem::daemon
