#include "dag/requests.h"

#include <algorithm>
#include <utility>

namespace tandem::dag {
namespace {

using shm::RecordKind;

// shim/tandem_mark.h
constexpr uint8_t kStepMark = 1;
constexpr uint8_t kBeginMark = 5;
constexpr uint8_t kEndMark = 6;

RecordKind kind_of(const shm::Record& record) { return static_cast<RecordKind>(record.kind); }

// The job may have written any value there.
uint64_t objective_of(const shm::Record& begin) {
  return begin.value <= RequestFinder::kMostObjectiveNs ? begin.value : 0;
}

}  // namespace

bool RequestFinder::concerns(const shm::Record& record) {
  const RecordKind kind = kind_of(record);
  return kind == RecordKind::kMark || kind == RecordKind::kWait || GapFinder::concerns(record);
}

bool RequestFinder::is_request_mark(const shm::Record& record) {
  return kind_of(record) == RecordKind::kMark &&
         (record.flags == kBeginMark || record.flags == kEndMark);
}

void RequestFinder::take(const shm::Record& record) {
  switch (kind_of(record)) {
    case RecordKind::kMark: mark(record); return;
    case RecordKind::kWait:  // written when the wait is over
      hold(record.ticks - std::min(record.duration_ns, record.ticks), record.ticks);
      return;
    case RecordKind::kSync: break;
    default:
      if (GapFinder::concerns(record)) ask(record.ticks);
  }
  work_.take(record);
}

void RequestFinder::rest(uint64_t now_ns) {
  const uint64_t until_ns = active_until_ns();
  if (kind_ == RequestKind::kBurst && until_ns < now_ns && now_ns - until_ns >= idle_ns_)
    end_burst();
}

void RequestFinder::lose() {
  work_.lose();
  open_.clear();
  asking_ = false;
  cut_ = true;
  waited_until_ns_ = 0;
}

std::vector<EndedRequest> RequestFinder::take_ended() { return std::exchange(ended_, {}); }

// kNotKnown counts as never.
uint64_t RequestFinder::active_until_ns() const {
  return std::max(work_.busy_until_ns(), waited_until_ns_);
}

// Waits come sorted by their ends: a part at the end that overlaps earlier waits counts once.
void RequestFinder::hold(uint64_t begin_ns, uint64_t end_ns) {
  ask(begin_ns);
  held_ns_ += end_ns - std::min(end_ns, std::max(begin_ns, waited_until_ns_));
  waited_until_ns_ = std::max(waited_until_ns_, end_ns);
}

void RequestFinder::ask(uint64_t begin_ns) {
  const uint64_t until_ns = active_until_ns();
  const bool after_a_rest = until_ns < begin_ns && begin_ns - until_ns >= idle_ns_;
  if (kind_ == RequestKind::kBurst && after_a_rest) end_burst();
  if (asking_ || cut_) return;
  asking_ = true;
  asked_ = {0, begin_ns, held_ns_, 0};
}

void RequestFinder::end_burst() {
  const uint64_t until_ns = active_until_ns();
  cut_ = false;
  if (std::exchange(asking_, false)) add(RequestKind::kBurst, until_ns, asked_);
}

void RequestFinder::mark(const shm::Record& record) {
  if (record.flags == kStepMark) {
    prefer(RequestKind::kStep);
    cut_ = false;
    if (std::exchange(asking_, false)) add(RequestKind::kStep, record.ticks, asked_);
  } else if (record.flags == kBeginMark) {
    prefer(RequestKind::kMarked);
    if (open_.size() == kMostOpen) open_.erase(open_.begin());
    open_.push_back({record.object, record.ticks, held_ns_, objective_of(record)});
    most_open_ = std::max(most_open_, open_.size());
  } else if (record.flags == kEndMark) {
    prefer(RequestKind::kMarked);
    end_marked(record);
  }
}

void RequestFinder::end_marked(const shm::Record& record) {
  const auto begun = std::find_if(open_.begin(), open_.end(),
                                  [&](const Open& open) { return open.number == record.object; });
  if (begun == open_.end()) return;
  add(RequestKind::kMarked, record.ticks, *begun);
  open_.erase(begun);
}

// Never mix durations of two kinds.
void RequestFinder::prefer(RequestKind kind) {
  if (kind <= kind_) return;
  kind_ = kind;
  ended_.clear();
  asking_ = false;
}

void RequestFinder::add(RequestKind kind, uint64_t end_ns, const Open& begun) {
  if (kind != kind_ || end_ns <= begun.begin_ns) return;
  const uint64_t duration_ns = end_ns - begun.begin_ns;
  if (ended_.size() == kMostKept) ended_.erase(ended_.begin());
  // Another thread's wait may have begun before the request.
  ended_.push_back(
      {duration_ns, std::min(held_ns_ - begun.held_ns, duration_ns), begun.objective_ns});
  if (limit_ns_ != 0 && duration_ns > limit_ns_) ++overruns_;
}

}  // namespace tandem::dag
