#include "dag/memory_curve.h"

#include <algorithm>

namespace tandem::dag {
namespace {

using shm::RecordKind;
using Step = MemoryCurve::Step;

constexpr uint64_t kLongestNs = 3'600'000'000'000;  // a claim; the sum must not overflow

bool tells_memory(RecordKind kind) {
  return kind == RecordKind::kAlloc || kind == RecordKind::kFree || kind == RecordKind::kSync;
}

// What was held before the first record with a figure; the figure is what was held after it.
uint64_t held_before(const shm::Record& record) {
  const uint64_t held = shm::held_at(record);
  switch (static_cast<RecordKind>(record.kind)) {
    case RecordKind::kAlloc: return held - std::min(held, record.bytes);
    case RecordKind::kFree: return held + std::min(record.bytes, UINT64_MAX - held);
    default: return held;
  }
}

// Follows what is held, record by record.
class Follower {
 public:
  bool knows() const { return knows_; }

  // Adds a launch of this duration. During it the process holds the most held since the previous
  // launch.
  void advance(uint64_t duration_ns) {
    if (duration_ns == 0) return;
    if (steps_.empty() || steps_.back().held_bytes != most_) steps_.push_back({length_, most_});
    length_ += std::min(duration_ns, kLongestNs);
    most_ = held_;
    is_fresh_ = true;
  }

  void take(const shm::Record& record) {
    if (!knows_) begin(held_before(record));
    held_ = shm::held_at(record);
    // The first record after a launch starts a new maximum: what was held before belongs to that
    // launch.
    most_ = is_fresh_ ? held_ : std::max(most_, held_);
    is_fresh_ = false;
  }

  // What is held at the end becomes a step of its own, even though it has no length.
  std::vector<Step> finish(size_t most);
  uint64_t length() const { return length_; }

 private:
  void begin(uint64_t held) {
    knows_ = true;
    held_ = most_ = held;
    for (Step& step : steps_) step.held_bytes = held;  // nothing has changed since the beginning
    if (steps_.size() > 1) steps_.resize(1);
  }

  std::vector<Step> steps_;
  uint64_t length_ = 0, held_ = 0;
  uint64_t most_ = 0;  // since the last launch
  bool knows_ = false;
  bool is_fresh_ = false;  // no record since the last launch
};

// Reduces the steps to the maximum in each of `parts` equal parts.
std::vector<Step> coarser(const std::vector<Step>& steps, uint64_t length, size_t parts) {
  std::vector<Step> out;
  size_t at = 0;
  for (size_t part = 0; part < parts; ++part) {
    const uint64_t begin = length / parts * part;
    const uint64_t end = part + 1 == parts ? length : length / parts * (part + 1);
    while (at + 1 < steps.size() && steps[at + 1].progress_ns <= begin) ++at;
    uint64_t most = steps[at].held_bytes;
    for (size_t i = at + 1; i < steps.size() && steps[i].progress_ns < end; ++i)
      most = std::max(most, steps[i].held_bytes);
    if (out.empty() || out.back().held_bytes != most) out.push_back({begin, most});
  }
  return out;
}

std::vector<Step> Follower::finish(size_t most) {
  if (steps_.empty()) return {{0, held_}};
  if (!is_fresh_) steps_.back().held_bytes = std::max(steps_.back().held_bytes, most_);
  std::vector<Step> out = steps_.size() < most ? steps_ : coarser(steps_, length_, most - 1);
  if (out.back().held_bytes != held_) out.push_back({length_, held_});
  return out;
}

}  // namespace

MemoryCurve memory_curve(const std::vector<shm::Record>& records, size_t most) {
  MemoryCurve curve;
  Follower follower;
  for (const shm::Record& record : records) {
    if (tells_memory(static_cast<RecordKind>(record.kind))) follower.take(record);
    if (!shm::is_launch(record)) continue;
    ++curve.launches;
    curve.untimed += record.duration_ns == 0 ? 1 : 0;
    follower.advance(record.duration_ns);
  }
  if (!follower.knows()) return curve;
  curve.length_ns = follower.length();
  curve.steps = follower.finish(most);
  return curve;
}

}  // namespace tandem::dag
