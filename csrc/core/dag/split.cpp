#include "dag/split.h"

#include <algorithm>

#include "dag/lifetimes.h"
#include "dag/turn.h"

namespace tandem::dag {
namespace {

constexpr size_t kFewest = 16;      // launches in the smallest iteration that is split
constexpr size_t kUpdateKinds = 8;  // most functions of an update
constexpr size_t kUpdateLeast = 6;  // fewest launches of an update ...
constexpr size_t kUpdateEach = 2;   // ... and of each of its functions, on average
constexpr size_t kPassLeast = 16;   // fewest launches of a pass
constexpr size_t kEffort = 32;      // how often each launch may be looked at to find passes
constexpr size_t kBatchWithin = 4;  // most launches that precede an iteration's batch

constexpr uint64_t fnv1a(const char* text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *text; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3u;
  return hash;
}

// Numbers the functions, from 0 on.
std::vector<uint32_t> numbered(const std::vector<Item>& items, size_t* kinds) {
  std::vector<uint64_t> objects;
  for (const Item& item : items) {
    if (item.kind == Item::Kind::kLaunch) objects.push_back(item.object);
  }
  std::vector<uint64_t> known = objects;
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  *kinds = known.size();
  std::vector<uint32_t> out;
  for (const uint64_t object : objects)
    out.push_back(static_cast<uint32_t>(std::lower_bound(known.begin(), known.end(), object) -
                                        known.begin()));
  return out;
}

// Returns how many launches precede the last wait of the host that has launches after it.
size_t last_wait(const std::vector<Item>& items) {
  size_t launches = 0, wait = 0, before = 0;
  for (const Item& item : items) {
    if (item.kind == Item::Kind::kWait) wait = launches;
    if (item.kind != Item::Kind::kLaunch) continue;
    before = wait;
    ++launches;
  }
  return before;
}

// True if the iteration begins with its batch, or where the program says that it begins. Elsewhere
// a forward pass may come after the update.
bool begins_with_batch(const std::vector<Item>& items) {
  if (items.front().kind == Item::Kind::kStep) return true;
  size_t launches = 0;
  for (const Item& item : items) {
    if (item.kind == Item::Kind::kToDevice) return true;
    if (item.kind == Item::Kind::kLaunch && ++launches > kBatchWithin) return false;
  }
  return false;
}

// True if all launches of a function are consecutive, just before `end`. Updates of many parameters
// at a time do each of their operations that way.
bool is_one_run(const std::vector<uint32_t>& functions, size_t end, size_t total) {
  if (total < 2 || total > end) return false;
  const uint32_t function = functions[end - 1];
  return std::all_of(functions.begin() + static_cast<ptrdiff_t>(end - total),
                     functions.begin() + static_cast<ptrdiff_t>(end),
                     [&](uint32_t other) { return other == function; });
}

// Returns the launch with which the update begins, or the number of launches if there is none.
size_t update_begin(const std::vector<uint32_t>& functions, size_t kinds, size_t earliest) {
  std::vector<size_t> total(kinds);
  for (const uint32_t function : functions) ++total[function];
  std::vector<bool> seen(kinds);
  size_t begin = functions.size(), found = begin, outside = 0, distinct = 0;
  while (begin > earliest) {
    const uint32_t function = functions[begin - 1];
    if (!seen[function]) {
      const bool known = found != functions.size();
      if (known && !is_one_run(functions, begin, total[function])) break;
      if (++distinct > kUpdateKinds) break;
      seen[function] = true;
      outside += total[function];
    }
    --begin;
    --outside;
    const size_t length = functions.size() - begin;
    const bool repeats = length >= kUpdateLeast && length >= kUpdateEach * distinct;
    if (repeats && outside * 10 <= length) found = begin;
  }
  return found;
}

// True if [0, length) and all passes after it up to `end` are much the same. Uses up some of
// `effort`.
bool are_passes(const std::vector<uint32_t>& functions, size_t length, size_t end, size_t* effort) {
  for (size_t pass = length; pass + length <= end; pass += length) {
    if (*effort < length) return false;
    *effort -= length;
    size_t differ = 0;
    for (size_t i = 0; i < length; ++i) differ += functions[i] != functions[pass + i] ? 1 : 0;
    if (differ * 10 > length) return false;
  }
  return true;
}

// Returns the length of the passes that [0, end) consists of; `end` itself if it is one pass.
size_t pass_length(const std::vector<uint32_t>& functions, size_t end) {
  size_t effort = kEffort * end;
  for (size_t length = kPassLeast; length * 2 <= end; ++length) {
    if (end % length * 20 > length || functions[length] != functions[0]) continue;
    if (are_passes(functions, length, end, &effort)) return length;
  }
  return end;
}

}  // namespace

std::vector<Phase> split(const std::vector<Item>& items) {
  size_t kinds = 0;
  const std::vector<uint32_t> functions = numbered(items, &kinds);
  const size_t count = functions.size();
  if (count < kFewest) return {};
  // If it is more than half, this is a loop of another kind, such as one that generates tokens.
  size_t update = update_begin(functions, kinds, last_wait(items));
  if (update < count / 2) return {};
  const bool has_update = update != count;
  const size_t pass = pass_length(functions, update);
  size_t turn = 0;
  if (const Nest nest = nest_of(items, pass); is_turn(functions, nest.turn, nest.end, kinds)) {
    turn = nest.turn;
    if (!has_update && pass == count) update = nest.end;
  } else if (has_update && begins_with_batch(items)) {
    turn = turn_of(functions, pass, kinds);
  }
  if (turn == 0) return {};
  std::vector<Phase> out(count, Phase::kUpdate);
  for (size_t i = 0; i < update; ++i) out[i] = i % pass < turn ? Phase::kForward : Phase::kBackward;
  return out;
}

Phase phase_of(uint64_t name_hash) {
  switch (name_hash) {
    case fnv1a("forward"): return Phase::kForward;
    case fnv1a("backward"): return Phase::kBackward;
    case fnv1a("update"): return Phase::kUpdate;
    default: return Phase::kOutside;
  }
}

std::vector<Phase> split_by_marks(const std::vector<Item>& items) {
  std::vector<Phase> out;
  Phase now = Phase::kOutside;
  bool any = false;
  for (const Item& item : items) {
    if (item.kind == Item::Kind::kLaunch) out.push_back(now);
    if (item.kind != Item::Kind::kPhaseBegin && item.kind != Item::Kind::kPhaseEnd) continue;
    const Phase named = phase_of(item.object);
    if (named == Phase::kOutside) continue;
    any = true;
    now = item.kind == Item::Kind::kPhaseBegin ? named : Phase::kOutside;
  }
  return any ? out : std::vector<Phase>{};
}

}  // namespace tandem::dag
