// The requests that a process answers and how long each took, from its telemetry records.
//
//   marked   from REQUEST_BEGIN to the REQUEST_END of the same number (tandem.slo); the former may
//            say how long the request is to take at most
//   stepped  for a process that marks steps instead: from the first thing it asked of the GPU after
//            a mark until the next mark
//   bursts   for all others: from the first thing asked of an idle GPU until everything asked has
//            ended; the process is idle if it asked for nothing for `idle_ns`
//
// Asking begins when a thread starts to wait for its turn, or else with the submission. A burst
// ends when the host has waited for its work, or else when the work is predicted to end. A better
// kind replaces the others from its first mark on. Bounded memory, constant work per record.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "dag/gaps.h"
#include "shm_layout.h"

namespace tandem::dag {

enum class RequestKind : uint32_t { kBurst = 0, kStep = 1, kMarked = 2 };

struct EndedRequest {
  uint64_t duration_ns = 0;
  uint64_t held_ns = 0;       // part of it in which a thread of the process was held before a call
  uint64_t objective_ns = 0;  // how long it is to take at most, by its mark; 0 = not said
};

class RequestFinder {
 public:
  static constexpr size_t kMostKept = 1024;  // not yet taken by anybody; the oldest go first
  static constexpr size_t kMostOpen = 64;    // marked requests in progress
  // As much as --slo accepts (spec_ranges.py): a mark beyond 100 years says nothing.
  static constexpr uint64_t kMostObjectiveNs = uint64_t{100 * 365} * 86'400 * 1'000'000'000;

  explicit RequestFinder(uint64_t idle_ns) : idle_ns_(idle_ns) {}

  static bool concerns(const shm::Record& record);
  static bool is_request_mark(const shm::Record& record);
  // Takes one record, with ticks in nanoseconds. Records of several threads must come by time.
  void take(const shm::Record& record);
  // The process has nothing on the GPU at `now_ns`, and none of its threads waits.
  void rest(uint64_t now_ns);
  // A request that takes longer is an overrun; 0 = none is.
  void limit(uint64_t limit_ns) { limit_ns_ = limit_ns; }
  // Records are missing before the next one: the current request is not measured, nor is what
  // remains of it, which lasts until the next rest or mark.
  void lose();

  RequestKind kind() const { return kind_; }
  // Returns the requests that ended since the last call, in that order.
  std::vector<EndedRequest> take_ended();
  // The most marked requests in progress at once since the last call.
  size_t take_most_open() { return std::exchange(most_open_, open_.size()); }
  uint64_t overruns() const { return overruns_; }  // since it began to look

 private:
  struct Open {
    uint64_t number = 0;
    uint64_t begin_ns = 0;
    uint64_t held_ns = 0;  // time held before it began
    uint64_t objective_ns = 0;
  };

  void mark(const shm::Record& record);
  void end_marked(const shm::Record& record);
  void hold(uint64_t begin_ns, uint64_t end_ns);
  void ask(uint64_t begin_ns);
  void end_burst();
  void prefer(RequestKind kind);
  void add(RequestKind kind, uint64_t end_ns, const Open& begun);
  uint64_t active_until_ns() const;

  const uint64_t idle_ns_;
  uint64_t limit_ns_ = 0;
  uint64_t overruns_ = 0;
  RequestKind kind_ = RequestKind::kBurst;
  GapFinder work_;
  bool asking_ = false;  // a burst or step is in progress:
  Open asked_;
  bool cut_ = false;  // one whose beginning is not known may be in progress
  uint64_t waited_until_ns_ = 0;
  uint64_t held_ns_ = 0;    // so far, by one thread or several at once
  std::vector<Open> open_;  // oldest first
  size_t most_open_ = 0;
  std::vector<EndedRequest> ended_;
};

}  // namespace tandem::dag
