#include "daemon/gap_watch.h"

#include <utility>

namespace tandem::daemon {

void GapWatch::take(const shm::Record* records, size_t count, uint64_t dropped) {
  round_.add(records, count, &dag::GapFinder::concerns);
  lost_ |= dropped != 0;
}

void GapWatch::look(Snapshot* snapshot) {
  if (lost_) finder_.lose();
  if (round_.empty() && !lost_) return;
  const uint64_t told = lost_ ? kNever : finder_.gaps().added();
  for (const shm::Record& record : round_) finder_.take(record);
  round_.clear();
  lost_ = false;
  const uint64_t linger_ns = std::exchange(linger_ns_, snapshot->linger_ns);
  if (finder_.gaps().added() == told && linger_ns == linger_ns_) return;  // nothing changed
  snapshot->gap_p50_ns = finder_.gaps().remaining_ns(0.5, snapshot->linger_ns);
  snapshot->gap_p90_ns = finder_.gaps().remaining_ns(0.9, snapshot->linger_ns);
}

}  // namespace tandem::daemon
