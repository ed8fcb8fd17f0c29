#include "daemon/request_watch.h"

#include <utility>

namespace tandem::daemon {

void RequestWatch::take(const shm::Record* records, size_t count, uint64_t dropped) {
  const bool is_marked = finder_.kind() == dag::RequestKind::kMarked;  // then nothing else counts
  round_.add(records, count,
             is_marked ? &dag::RequestFinder::is_request_mark : &dag::RequestFinder::concerns);
  lost_ |= dropped != 0;
}

void RequestWatch::look(const Snapshot& snapshot, uint64_t now_ns) {
  if (std::exchange(lost_, false)) finder_.lose();
  for (const shm::Record& record : round_) finder_.take(record);
  round_.clear();
  if (!snapshot.busy && snapshot.waiting_threads == 0) finder_.rest(now_ns);
}

}  // namespace tandem::daemon
