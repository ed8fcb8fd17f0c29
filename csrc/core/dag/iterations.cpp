#include "dag/iterations.h"

#include <algorithm>
#include <utility>

#include "dag/records.h"

namespace tandem::dag {
namespace {

using shm::RecordKind;

// Symbols below kFirst stand for what the host does; functions and graphs are hashed above it.
enum Symbol : uint32_t {
  kNothing = 0,
  kWait = 1,
  kToDevice = 2,
  kWithin = 3,
  kMemset = 4,
  kFirst = 16
};

// Symbols that are remembered: few at first, since most loops are short and there are many jobs. An
// iteration is at most half of them.
constexpr size_t kFewest = 1024;
constexpr size_t kMostMoments = 32768;
constexpr uint64_t kGram = 4;        // symbols that make an anchor ...
constexpr uint64_t kBefore = 2;      // ... this many of them before the beginning, if possible
constexpr uint64_t kSure = 64;       // symbols of a third repetition, or of two more short ones
constexpr uint64_t kInner = 4;       // an inner loop is at most 1/kInner as long as the outer one
constexpr uint64_t kTries = 16;      // places where a unique anchor is looked for
constexpr uint32_t kAlike = 4;       // stretches in a row, where symbols do not repeat
constexpr uint32_t kSameHashes = 6;  // of 16, in two stretches that are alike
constexpr uint64_t kShortest = 8;    // symbols of a stretch that is compared
constexpr uint64_t kPatience = 8;    // iteration lengths without a beginning after which it is lost
constexpr uint64_t kCopying = 64;    // symbols of a loop that copies, and never waits
constexpr uint64_t kWaits = 16;      // of the host in one iteration; more mean several iterations
constexpr uint64_t kParts = 64;      // passes that one iteration may consist of
constexpr uint64_t kHostless = 4096;  // symbols of a loop in which the host takes no part ...
constexpr uint64_t kHostFar = 8;      // ... and how many times as long the host did nothing

uint32_t hash32(uint64_t value) {
  value ^= value >> 32;
  value *= 0x9e3779b97f4a7c15u;
  return static_cast<uint32_t>(value >> 32);
}

uint32_t named(uint64_t kind, uint64_t object) {
  return std::max<uint32_t>(kFirst, hash32(object * 31 + kind));
}

// Shapes change from one iteration to the next, so a symbol includes neither grid nor size.
uint32_t symbol_of(const shm::Record& record) {
  switch (static_cast<RecordKind>(record.kind)) {
    case RecordKind::kLaunch:
    case RecordKind::kGraph:
    case RecordKind::kHostFunc: return named(record.kind, record.object);
    case RecordKind::kCopy:
      return shm::low_value(record) == 1   ? kToDevice
             : shm::low_value(record) == 2 ? kWait
                                           : kWithin;
    case RecordKind::kMemset: return kMemset;
    case RecordKind::kSync: return record.flags & shm::kRecordQueried ? kNothing : kWait;
    default: return kNothing;
  }
}

}  // namespace

void IterationFinder::Stretch::clear() {
  std::fill_n(least, kSketch, kEmpty);
  symbols = gram = end_gram = 0;
}

// Keeps the least hash of each bin of one permutation: Li, Owen and Zhang, One Permutation Hashing
// (2012).
void IterationFinder::Stretch::add(uint32_t triple) {
  const uint32_t hash = hash32(triple);
  uint32_t& bin = least[hash % kSketch];
  bin = std::min(bin, hash);
}

bool IterationFinder::Stretch::is_like(const Stretch& other) const {
  const uint64_t longer = std::max(symbols, other.symbols);
  const bool bounded_alike = gram == other.gram || end_gram == other.end_gram;
  if (!bounded_alike || (longer - std::min(symbols, other.symbols)) * 8 > longer) return false;
  uint32_t same = 0, used = 0;
  for (uint32_t i = 0; i < kSketch; ++i) {
    if (least[i] == kEmpty && other.least[i] == kEmpty) continue;
    ++used;
    same += least[i] == other.least[i] ? 1 : 0;
  }
  return same * kSketch >= used * kSameHashes;
}

IterationFinder::IterationFinder() : symbols_(kFewest), moments_(kFewest) {
  now_.clear();
  before_.clear();
}

void IterationFinder::take(const shm::Record& record) {
  const uint32_t symbol = symbol_of(record);
  if (symbol == kNothing) return;
  // Consecutive waits count as one: how often the host looks is not part of a program's shape.
  if (symbol == kWait && symbols_.pushed() && symbols_.symbol(0) == kWait) return;
  push(symbol, record.ticks);
  if (shm::is_launch(record)) ++submitted_;
  if (is_stale(record)) usual_.renew();
}

void IterationFinder::gap() {
  symbols_.interrupt();
  begin_ = {};
  looked_since_ = symbols_.pushed();
  alike_ = 0;
  now_.clear();
}

void IterationFinder::push(uint32_t symbol, uint64_t ticks) {
  if (!is_settled() && symbols_.pushed() && symbols_.symbol(0) == kWait) end_stretch();
  moments_[symbols_.pushed() & (moments_.size() - 1)] = {ticks, static_cast<uint32_t>(submitted_),
                                                         static_cast<uint16_t>(waits_),
                                                         static_cast<uint16_t>(ends_)};
  if (is_settled()) {
    symbols_.remember(symbol);
  } else {
    symbols_.push(symbol);
    add_to_stretch();
  }
  if (symbol == kWait) {
    last_wait_ = symbols_.pushed();
    ++waits_;
  }
  if (symbol == kWait || symbol == kToDevice) last_host_ = symbols_.pushed();
  if (found()) follow();
  search();
  if (is_settled()) settled_at_ = symbols_.pushed();
  else if (moments_.size() < kMostMoments && symbols_.pushed() - settled_at_ >= moments_.size())
    grow();
}

// Remembers more before the oldest symbols are lost, since nothing was found, or only a possible
// part.
void IterationFinder::grow() {
  std::vector<Moment> larger(2 * moments_.size());
  const uint64_t pushed = symbols_.pushed();
  for (uint64_t index = pushed - moments_.size(); index < pushed; ++index)
    larger[index & (larger.size() - 1)] = moments_[index & (moments_.size() - 1)];
  moments_ = std::move(larger);
  symbols_.grow();
}

void IterationFinder::add_to_stretch() {
  ++now_.symbols;
  if (now_.symbols == kBefore && symbols_.pushed() >= kGram) {
    now_.gram = gram(0);
    now_.second = symbols_.symbol(0);
  }
  if (now_.symbols < 3) return;
  now_.add(symbols_.symbol(0) ^ symbols_.symbol(1) * 0x9e3779b1u ^
           symbols_.symbol(2) * 0x85ebca6bu);
}

// Called when the host continues after a wait.
void IterationFinder::end_stretch() {
  if (now_.symbols < kShortest) return;
  now_.end_gram = gram(0);
  alike_ = now_.is_like(before_) ? alike_ + 1 : 1;
  before_ = now_;
  now_.clear();
}

// Something repeats or is alike: claims it if it is an iteration, and more of one than is known.
void IterationFinder::search() {
  if (is_settled()) return;
  Repetitions::Found going_on[Repetitions::kMost];
  const size_t count = symbols_.going_on(going_on);
  uint64_t period = 0;
  for (size_t i = 0; i < count; ++i) {
    const Repetitions::Found& one = going_on[i];
    if (is_sure(one) && !is_explained(one, going_on, count) &&
        one.period * 2 + kSure < symbols_.capacity() && is_more(one.period) &&
        host_takes_part(one) && (period == 0 || one.period < period)) {
      period = one.period;
    }
  }
  if (period) claim(period);
  else if (!found()) claim_alike();
}

// A third time is required: two alike may be chance, the more likely the shorter they are.
bool IterationFinder::is_sure(const Repetitions::Found& found) {
  return found.covered >= 2 * found.period + std::min(2 * found.period, kSure);
}

// While an inner loop continues, it proves nothing that the outer one continues as well: requests
// of different size to one model are alike until the shorter one ends.
bool IterationFinder::is_explained(const Repetitions::Found& found,
                                   const Repetitions::Found* going_on, size_t count) {
  return std::any_of(going_on, going_on + count, [&](const Repetitions::Found& inner) {
    return inner.period * kInner <= found.period;
  });
}

void IterationFinder::claim_alike() {
  if (alike_ < kAlike || now_.symbols != kBefore) return;
  length_ = before_.symbols;
  has_wait_ = has_host_ = true;
  anchors_[0] = anchors_[1] = {before_.gram, kGram - 1 - kBefore, before_.second};
  after_wait_ = true;
  end_gram_ = before_.end_gram;
  begin_ = begin_at(anchors_[0].offset);
  usual_.forget();
  launches_ = 0;
}

// Iterations with something extra now and then, a log or an evaluation, are still iterations. But
// passes without a wait of the host, followed by a larger part such as an update, are parts of one
// iteration.
bool IterationFinder::is_more(uint64_t period) const {
  if (!found()) return true;
  if (period <= length_ || period / length_ > kParts) return false;
  const uint16_t ends = moments_[(symbols_.pushed() - period) & (moments_.size() - 1)].ends;
  const uint64_t explained = static_cast<uint16_t>(ends_ - ends) * length_;
  return period > explained && (period - explained) * 10 >= length_;
}

bool IterationFinder::host_takes_part(const Repetitions::Found& found) const {
  const uint64_t ago = symbols_.pushed() - found.period;  // < capacity
  const auto waits = static_cast<uint16_t>(waits_ - moments_[ago & (moments_.size() - 1)].waits);
  if (waits) return waits <= kWaits;
  const uint64_t since = last_host_ ? symbols_.pushed() - last_host_ : UINT64_MAX;
  // Programs copy their parameters in short loops before they start to work.
  if (since < found.period) return found.period >= kCopying;
  // Layers of a model repeat, too, but not for long and not far from the host's last part.
  return found.covered >= kHostless && found.period >= kShortest &&
         (since == UINT64_MAX || since >= kHostFar * found.covered);
}

void IterationFinder::claim(uint64_t period) {
  // Claims one period back, so that everything around the beginning lies in the past.
  const uint64_t beginning = beginning_in(period) + period;
  const bool known = found();
  length_ = period;
  has_wait_ = last_wait_ && symbols_.pushed() - last_wait_ < period;
  has_host_ = last_host_ && symbols_.pushed() - last_host_ < period;
  const bool over = anchor_near(beginning, kGram - 1 - kBefore, period, &anchors_[0]);
  const bool behind = anchor_near(beginning, kGram - 1, period, &anchors_[1]);
  if (!behind) anchors_[1] = anchors_[0];
  else if (!over) anchors_[0] = anchors_[1];
  after_wait_ = symbols_.symbol(beginning + 1) == kWait;
  end_gram_ = after_wait_ && is_unique(beginning + 1, period) ? gram(beginning + 1) : 0;
  usual_.forget();
  launches_ = 0;
  begin_ = begin_at(beginning);
  if (beginning - period >= anchors_[1].offset && !known)
    end_iteration(begin_at(beginning - period));
}

// Finds the first few symbols that occur once in a period, at `offset` from its beginning or later.
bool IterationFinder::anchor_near(uint64_t beginning, uint64_t offset, uint64_t period,
                                  Anchor* anchor) const {
  *anchor = anchor_at(beginning - offset, offset);  // fallback: the distance tells a beginning
  for (uint64_t tried = 0; tried < kTries && offset + tried <= beginning; ++tried) {
    const uint64_t back = beginning - offset - tried;
    if (!is_unique(back, period)) continue;
    *anchor = anchor_at(back, offset + tried);
    return true;
  }
  return false;
}

// Returns how far back the newest beginning lies, judged by what the host does: where it continues
// after a wait, best with a copy to the device, else before the longest stretch without a wait.
uint64_t IterationFinder::beginning_in(uint64_t period) const {
  uint64_t best = period - 1, best_score = 0, stretch = 0;
  for (uint64_t back = 0; back < 2 * period - 1; ++back, ++stretch) {
    const uint32_t symbol = symbols_.symbol(back);
    if (symbol == kWait) stretch = 0;
    if (back + 1 < period && stretch == back) continue;  // its end is not in sight
    const uint32_t previous = symbols_.symbol(back + 1);
    const bool copies = symbol == kToDevice && previous != kToDevice;
    if (symbol == kWait || (previous != kWait && !copies)) continue;
    const uint64_t score = stretch + (copies ? 2 : 0) * period + (previous == kWait ? period : 0);
    if (score > best_score) {
      best_score = score;
      best = back;
    }
  }
  return best % period;
}

IterationFinder::Anchor IterationFinder::anchor_at(uint64_t back, uint64_t offset) const {
  return {gram(back), offset, symbols_.symbol(back)};
}

bool IterationFinder::is_unique(uint64_t back, uint64_t period) const {
  const uint64_t wanted = gram(back);
  for (uint64_t other = back + 1; other < back + period; ++other) {
    if (other + kGram > symbols_.capacity() || other + kGram > symbols_.pushed()) break;
    if (gram(other) == wanted) return false;
  }
  return true;
}

uint64_t IterationFinder::gram(uint64_t back) const {
  uint64_t hash = 0;
  for (uint64_t i = 0; i < kGram; ++i)
    hash = (hash ^ symbols_.symbol(back + i)) * 0x9e3779b97f4a7c15u ^ hash >> 31;
  return hash;
}

IterationFinder::Begin IterationFinder::begin_at(uint64_t back) const {
  const uint64_t index = symbols_.pushed() - 1 - back;
  const Moment& moment = moments_[index & (moments_.size() - 1)];
  return {index + 1, moment.ticks, moment.launches};
}

void IterationFinder::follow() {
  const uint64_t pushed = symbols_.pushed();
  for (const Anchor& anchor : anchors_) {
    if (symbols_.symbol(0) != anchor.last) continue;
    if (gram(0) != anchor.gram || pushed <= anchor.offset + 1) continue;
    // Something in between may look like a beginning, but there the host does not come from a wait.
    if (after_wait_ && symbols_.symbol(anchor.offset + 1) != kWait) continue;
    arrive(begin_at(anchor.offset));
  }
  if (end_gram_ && symbols_.symbol(1) == kWait && gram(1) == end_gram_) arrive(begin_at(0));
  const uint64_t since = pushed - (begin_.at ? begin_.at : looked_since_);
  if (since > kPatience * length_ + kShortest) {
    if (is_settled()) symbols_.catch_up();
    length_ = 0;
    alike_ = 0;
    now_.clear();
  }
}

void IterationFinder::arrive(const Begin& next) {
  if (!begin_.at) begin_ = next;
  else if (next.at >= begin_.at + length_ - length_ / 2) end_iteration(next);
}

void IterationFinder::end_iteration(const Begin& next) {
  const uint64_t symbols = next.at - begin_.at;
  ++ends_;
  last_end_ = next.ticks;
  if (symbols <= length_ + length_ / 2) {  // nothing else was done in between
    usual_.take(next.ticks - begin_.ticks);
    launches_ = next.launches - begin_.launches;
  }
  begin_ = next;
}

}  // namespace tandem::dag
