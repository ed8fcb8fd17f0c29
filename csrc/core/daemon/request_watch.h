// The requests of one process, from the records of all its threads. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/round_by_time.h"
#include "daemon/snapshot.h"
#include "dag/requests.h"

namespace tandem::daemon {

// What take_requests reports.
struct Requests {
  dag::RequestKind kind = dag::RequestKind::kBurst;
  std::vector<dag::EndedRequest> ended;
  size_t most_open = 0;  // marked requests, at one time
};

class RequestWatch {
 public:
  explicit RequestWatch(uint64_t idle_ns) : finder_(idle_ns) {}

  // Adds what one ring brought in this round, oldest first, with ticks in nanoseconds.
  void take(const shm::Record* records, size_t count, uint64_t dropped);
  // Call after all rings.
  void look(const Snapshot& snapshot, uint64_t now_ns);
  Requests told() { return {finder_.kind(), finder_.take_ended(), finder_.take_most_open()}; }

  dag::RequestKind kind() const { return finder_.kind(); }
  void limit(uint64_t limit_ns) { finder_.limit(limit_ns); }
  uint64_t overruns() const { return finder_.overruns(); }

 private:
  dag::RequestFinder finder_;
  RoundByTime round_;
  bool lost_ = false;
};

}  // namespace tandem::daemon
