#include "daemon/window.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "dag/records.h"

namespace tandem::daemon {
namespace {

// A wait that ended exactly then began earlier, and belongs to what ends there.
bool is_after(const shm::Record& record, uint64_t end_ns) {
  return record.ticks > end_ns || dag::effect_at(record) >= end_ns;
}

uint64_t patience_ns(uint64_t usual_ns) {
  const uint64_t longest_ns = std::min(usual_ns, WindowTaker::kMostNs);  // avoids overflow below
  return std::clamp(longest_ns * WindowTaker::kLongestIterations, WindowTaker::kLongestNs,
                    WindowTaker::kMostNs);
}

}  // namespace

void WindowTaker::want(uint64_t now_ns, const LiveMemory& memory) {
  if (taking_) return;
  taking_ = std::make_unique<Window>();
  taking_->begin_ns = wanted_ns_ = now_ns;
  taking_->memory = memory;
  taking_->records.reserve(kMaxRecords);  // growing would make one round slow
  ordered_ = 0;
  busy_.clear();
  is_sampled_ = looked_ = has_begun_ = false;
  fewest_stale_ = kMaxRecords + 1;
}

void WindowTaker::want_sampled(uint64_t now_ns, const LiveMemory& memory) {
  taking_ = nullptr;
  sampled_ = nullptr;
  want(now_ns, memory);
  is_sampled_ = true;
}

void WindowTaker::take(const shm::Record* records, size_t count, uint64_t lost) {
  if (!taking_) return;
  std::vector<shm::Record>& kept = taking_->records;
  const size_t room = kMaxRecords - kept.size();
  kept.insert(kept.end(), records, records + std::min(count, room));
  taking_->is_cut |= count > room;
  taking_->lost += lost;
}

void WindowTaker::charge(uint64_t begin_ns, uint64_t end_ns, bool is_shared) {
  if (!taking_ || begin_ns == end_ns) return;
  Stretch* const last = busy_.empty() ? nullptr : &busy_.back();
  const bool goes_on = last && last->end_ns == begin_ns && last->is_shared == is_shared;
  if (goes_on || busy_.size() == kMostStretches) {
    last->end_ns = end_ns;
    last->is_shared |= is_shared;
  } else {
    busy_.push_back({begin_ns, end_ns, is_shared});
  }
}

void WindowTaker::count_busy() {
  for (const Stretch& stretch : busy_) {
    const uint64_t from_ns = std::max(stretch.begin_ns, taking_->begin_ns);
    const uint64_t to_ns = std::min(stretch.end_ns, taking_->end_ns);
    if (from_ns >= to_ns) continue;
    taking_->busy_ns += to_ns - from_ns;
    if (stretch.is_shared) taking_->shared_ns += to_ns - from_ns;
  }
}

void WindowTaker::look(uint64_t iterations, uint64_t last_end_ns, uint64_t usual_ns,
                       uint64_t now_ns) {
  if (!taking_) return;
  dag::in_order(&taking_->records, std::exchange(ordered_, taking_->records.size()));
  if (!looked_) {
    looked_ = true;
    seen_ = iterations;
    begins_after_ns_ = now_ns;
  }
  const bool is_late = now_ns - std::min(now_ns, wanted_ns_) >= patience_ns(usual_ns);
  // The record of an end may be read one round before the end is counted.
  const bool is_counted_late = last_end_ns <= begins_after_ns_;
  if (is_counted_late) seen_ = taking_->first_iteration = iterations;
  if (iterations != seen_ && !has_begun_) {
    begin(iterations, last_end_ns);
  } else if (iterations != seen_ && !is_late && will_do_better(iterations, last_end_ns)) {
    begin(iterations, last_end_ns);
  } else if (iterations != seen_) {
    finish(iterations, last_end_ns);
  } else if (is_late || taking_->is_cut) {
    finish(seen_, now_ns);
  }
}

// Whatever came before the end of an iteration does not belong to the next one.
void WindowTaker::begin(uint64_t iterations, uint64_t end_ns) {
  has_begun_ = true;
  seen_ = iterations;
  std::vector<shm::Record>& kept = taking_->records;
  const auto is_new = [end_ns](const shm::Record& record) { return is_after(record, end_ns); };
  const auto first = std::stable_partition(kept.begin(), kept.end(), std::not_fn(is_new));
  taking_->memory.take(kept.data(), static_cast<size_t>(first - kept.begin()), 0);
  taking_->memory.settle();
  if (taking_->lost != 0 || taking_->is_cut) taking_->memory = {};
  kept.erase(kept.begin(), first);
  ordered_ = kept.size();
  const auto is_past = [end_ns](const Stretch& stretch) { return stretch.end_ns <= end_ns; };
  busy_.erase(std::remove_if(busy_.begin(), busy_.end(), is_past), busy_.end());
  taking_->begin_ns = begins_after_ns_ = end_ns;
  taking_->first_iteration = iterations;
  taking_->lost = 0;
  taking_->is_cut = false;
}

bool WindowTaker::will_do_better(uint64_t iterations, uint64_t end_ns) {
  const std::vector<shm::Record>& kept = taking_->records;
  const auto stale = static_cast<size_t>(
      std::count_if(kept.begin(), kept.end(), [end_ns](const shm::Record& record) {
        return dag::is_stale(record) && !is_after(record, end_ns);
      }));
  if (stale < fewest_stale_) {
    fewest_stale_ = stale;
    fewest_at_ = iterations;
    fewest_ns_ = end_ns;
  }
  return stale != 0 && (iterations - fewest_at_ < kFruitless || end_ns - fewest_ns_ < kFruitlessNs);
}

void WindowTaker::finish(uint64_t iterations, uint64_t end_ns) {
  std::vector<shm::Record>& kept = taking_->records;
  const auto is_later = [end_ns](const shm::Record& record) { return is_after(record, end_ns); };
  kept.erase(std::remove_if(kept.begin(), kept.end(), is_later), kept.end());
  if (kept.capacity() > 2 * kept.size()) kept.shrink_to_fit();
  taking_->iterations = iterations - seen_;
  taking_->end_ns = end_ns;
  count_busy();
  newest_ = std::move(taking_);
  if (is_sampled_) sampled_ = newest_;
}

}  // namespace tandem::daemon
