#include "dag/phases.h"

#include <algorithm>
#include <cstdlib>

namespace tandem::dag {
namespace {

using shm::Record;
using shm::RecordKind;

constexpr size_t kMostItems = 65536;  // of one iteration and what lies around it
constexpr uint32_t kAgree = 3;        // iterations in a row until they are believed ...
constexpr int kApart = 50;            // ... and how far they may differ, in thousandths
constexpr uint32_t kFail = 2;         // failures in a row until nothing is believed any more
constexpr uint32_t kSettles = 2;      // rounds after which no other thread's records are missing
constexpr uint8_t kStepMark = 1, kPhaseBeginMark = 2, kPhaseEndMark = 3;  // shim/tandem_mark.h

bool kind_of(const Record& record, Item::Kind* kind) {
  switch (static_cast<RecordKind>(record.kind)) {
    case RecordKind::kLaunch:
    case RecordKind::kGraph: *kind = Item::Kind::kLaunch; return true;
    case RecordKind::kSync: *kind = Item::Kind::kWait; return !(record.flags & shm::kRecordQueried);
    case RecordKind::kAlloc: *kind = Item::Kind::kAlloc; return true;
    case RecordKind::kFree: *kind = Item::Kind::kFree; return true;
    case RecordKind::kCopy:
      *kind = shm::low_value(record) == 1 ? Item::Kind::kToDevice : Item::Kind::kWait;
      return shm::low_value(record) == 1 || shm::low_value(record) == 2;
    case RecordKind::kMark:
      *kind = record.flags == kPhaseBeginMark ? Item::Kind::kPhaseBegin : Item::Kind::kPhaseEnd;
      return record.flags == kPhaseBeginMark || record.flags == kPhaseEndMark;
    default: return false;
  }
}

// A launch of unknown duration counts as the mean of the others.
PhaseShares weighed(const std::vector<Item>& items, const std::vector<Phase>& phases) {
  double known_ns = 0, known = 0;
  for (const Item& item : items) {
    if (item.kind != Item::Kind::kLaunch || item.size == 0) continue;
    known_ns += static_cast<double>(item.size);
    ++known;
  }
  const double mean_ns = known > 0 ? known_ns / known : 1;
  double of[4] = {}, all = 0;
  auto phase = phases.begin();
  for (const Item& item : items) {
    if (item.kind != Item::Kind::kLaunch) continue;
    const double ns = item.size ? static_cast<double>(item.size) : mean_ns;
    of[static_cast<size_t>(*phase++)] += ns;
    all += ns;
  }
  const auto part = [&](Phase of_phase) {
    return static_cast<uint16_t>(of[static_cast<size_t>(of_phase)] / all * 1000 + 0.5);
  };
  return {part(Phase::kForward), part(Phase::kBackward), part(Phase::kUpdate), false};
}

bool alike(const PhaseShares& left, const PhaseShares& right) {
  return std::abs(left.forward - right.forward) <= kApart &&
         std::abs(left.backward - right.backward) <= kApart &&
         std::abs(left.update - right.update) <= kApart;
}

}  // namespace

bool item_of(const Record& record, Item* item) {
  if (!kind_of(record, &item->kind)) return false;
  item->ticks = record.ticks;
  item->object = record.object;
  item->size = item->kind == Item::Kind::kLaunch ? record.duration_ns : record.bytes;
  return true;
}

void PhaseFinder::take_wanted(uint16_t thread, const Record& record) {
  if (static_cast<RecordKind>(record.kind) == RecordKind::kMark && record.flags == kStepMark)
    take_step(thread, record.ticks);
  else if (state_ != State::kOff) keep(thread, record);
}

void PhaseFinder::take_step(uint16_t thread, uint64_t ticks) {
  if (!by_steps_) stop();
  by_steps_ = true;
  if (state_ != State::kOff) put({ticks, 0, 0, Item::Kind::kStep, true, thread});
  pass_beginning();
}

void PhaseFinder::end(uint16_t thread, uint64_t launches_since, uint64_t ticks) {
  if (by_steps_) return;
  const size_t first = beginning(thread, launches_since);
  if (first < items_.size()) items_[first].begins = true;
  else if (state_ != State::kOff) put({ticks, 0, 0, Item::Kind::kWait, true, thread});
  pass_beginning();
}

void PhaseFinder::keep(uint16_t thread, const Record& record) {
  Item item{};
  item.thread = thread;
  if (item_of(record, &item)) put(item);
}

void PhaseFinder::put(const Item& item) {
  if (items_.size() == kMostItems) stop();
  else items_.push_back(item);
}

void PhaseFinder::pass_beginning() {
  switch (state_) {
    case State::kOff:
      if (skip_ != 0) --skip_;
      else state_ = State::kBefore;
      break;
    case State::kBefore: state_ = State::kWithin; break;
    case State::kWithin:
      state_ = State::kComplete;
      settled_ = 0;
      break;
    case State::kComplete: break;
  }
}

// Returns the place after the thread's last wait or launch before those launches.
size_t PhaseFinder::beginning(uint16_t thread, uint64_t launches_since) const {
  size_t first = items_.size();
  for (size_t i = items_.size(); i-- > 0;) {
    const Item& item = items_[i];
    if (item.thread != thread) continue;
    const bool is_launch = item.kind == Item::Kind::kLaunch;
    if (launches_since == 0 && (is_launch || item.kind == Item::Kind::kWait)) break;
    if (is_launch) --launches_since;
    first = i;
  }
  return first;
}

void PhaseFinder::gap() { stop(); }

void PhaseFinder::stop() {
  state_ = State::kOff;
  items_.clear();
}

void PhaseFinder::settle() {
  if (state_ != State::kComplete || ++settled_ < kSettles) return;
  judge(iteration());
  stop();
  items_.shrink_to_fit();
  skip_ = agreeing_ >= kAgree || failing_ >= kAgree ? sample_every_ - 1 : 0;
}

// Returns the items between the first two beginnings.
std::vector<Item> PhaseFinder::iteration() {
  std::stable_sort(items_.begin(), items_.end(),
                   [](const Item& left, const Item& right) { return left.ticks < right.ticks; });
  const auto begins = [](const Item& item) { return item.begins; };
  const auto first = std::find_if(items_.begin(), items_.end(), begins);
  if (first == items_.end()) return {};
  const auto last = std::find_if(first + 1, items_.end(), begins);
  if (last == items_.end()) return {};
  return {first, last};
}

void PhaseFinder::judge(const std::vector<Item>& items) {
  std::vector<Phase> phases = split_by_marks(items);
  const bool marked = !phases.empty();
  if (!marked) phases = split(items);
  if (phases.empty()) {
    agreeing_ = 0;
    if (++failing_ >= kFail) shares_ = {};
    return;
  }
  PhaseShares now = weighed(items, phases);
  now.marked = marked;
  agreeing_ = agreeing_ && alike(now, last_) ? agreeing_ + 1 : 1;
  failing_ = 0;
  last_ = now;
  if (marked || agreeing_ >= kAgree) shares_ = now;
}

}  // namespace tandem::dag
