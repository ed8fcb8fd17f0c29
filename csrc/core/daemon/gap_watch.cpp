#include "daemon/gap_watch.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tandem::daemon {

void GapWatch::take(const shm::Record* records, size_t count, uint64_t dropped) {
  const auto others = static_cast<ptrdiff_t>(round_.size());
  std::copy_if(records, records + count, std::back_inserter(round_), &dag::GapFinder::concerns);
  lost_ |= dropped != 0;
  if (others == 0) return;
  std::inplace_merge(round_.begin(), round_.begin() + others, round_.end(),
                     [](const shm::Record& left, const shm::Record& right) {
                       return left.ticks < right.ticks;
                     });
}

void GapWatch::look(Snapshot* snapshot) {
  if (lost_) finder_.lose();
  if (round_.empty() && !lost_) return;
  const uint64_t told = lost_ ? kNever : finder_.gaps().added();
  for (const shm::Record& record : round_) finder_.take(record);
  round_.clear();
  lost_ = false;
  const uint64_t linger_ns = std::exchange(linger_ns_, snapshot->linger_ns);
  if (finder_.gaps().added() == told && linger_ns == linger_ns_) return;  // of nothing new
  snapshot->gap_p50_ns = finder_.gaps().remaining_ns(0.5, snapshot->linger_ns);
  snapshot->gap_p90_ns = finder_.gaps().remaining_ns(0.9, snapshot->linger_ns);
}

}  // namespace tandem::daemon
