#include "dag/lifetimes.h"

#include <algorithm>
#include <cstdint>

namespace tandem::dag {
namespace {

constexpr size_t kShort = 10;  // a lifetime must last 1/kShort of the iteration
constexpr size_t kNested = 6;  // lifetimes that make a nest
constexpr uint64_t kMostBytes = uint64_t{1} << 46;  // of one allocation: more is a lie
constexpr double kMostShare = 0.5;  // least share of their bytes that spans the turn

struct Life {
  size_t begin, end;  // launches
  uint64_t bytes;
};

struct Change {
  uint64_t address;
  size_t launches;  // before it
  uint64_t bytes;   // 0 = freed
};

std::vector<Change> changes_in(const std::vector<Item>& items, size_t limit) {
  std::vector<Change> out;
  size_t launches = 0;
  for (const Item& item : items) {
    if (item.kind == Item::Kind::kLaunch && ++launches > limit) break;
    if (item.kind == Item::Kind::kAlloc) out.push_back({item.object, launches, item.size});
    if (item.kind == Item::Kind::kFree) out.push_back({item.object, launches, 0});
  }
  return out;
}

// Sorts instead of hashing: addresses are the job's claim, and could be chosen to collide.
std::vector<Life> lives_in(const std::vector<Item>& items, size_t limit) {
  std::vector<Change> changes = changes_in(items, limit);
  std::stable_sort(changes.begin(), changes.end(), [](const Change& left, const Change& right) {
    return left.address < right.address;
  });
  std::vector<Life> out;
  for (size_t i = 1; i < changes.size(); ++i) {
    const Change &from = changes[i - 1], &to = changes[i];
    if (from.address != to.address || from.bytes == 0 || to.bytes != 0) continue;
    if ((to.launches - from.launches) * kShort < limit) continue;
    out.push_back({from.launches, to.launches, std::min(from.bytes, kMostBytes)});
  }
  return out;
}

// Returns the middle of the part in which most bytes are alive.
size_t peak_of(const std::vector<Life>& lives, size_t limit) {
  std::vector<int64_t> change(limit + 2);
  for (const Life& life : lives) {
    change[life.begin] += static_cast<int64_t>(life.bytes);
    change[life.end] -= static_cast<int64_t>(life.bytes);
  }
  int64_t live = 0, most = 0;
  size_t first = 0, last = 0;
  for (size_t i = 0; i <= limit; ++i) {
    live += change[i];
    if (live > most) first = i;
    if (live >= most) last = i;
    most = std::max(most, live);
  }
  return (first + last) / 2;
}

size_t latest_end(const std::vector<Life>& lives) {
  size_t end = 0;
  for (const Life& life : lives) end = std::max(end, life.end);
  return end;
}

// Rejects memory that is all allocated or all freed at once, as in a pass that only infers.
bool is_spread(const std::vector<Life>& by_begin, size_t turn) {
  size_t first_end = SIZE_MAX;
  for (const Life& life : by_begin) first_end = std::min(first_end, life.end);
  const size_t last_end = latest_end(by_begin);
  return (by_begin.back().begin - by_begin.front().begin) * 2 >= turn &&
         (last_end - first_end) * 2 >= last_end - turn;
}

// True if, in order of their beginnings, most lifetimes end before their predecessor does.
bool is_nest(std::vector<Life> lives, size_t turn) {
  if (lives.size() < kNested) return false;
  std::sort(lives.begin(), lives.end(),
            [](const Life& left, const Life& right) { return left.begin < right.begin; });
  size_t nested = 0;
  for (size_t i = 1; i < lives.size(); ++i) nested += lives[i].end <= lives[i - 1].end ? 1 : 0;
  return is_spread(lives, turn) && nested * 4 >= 3 * (lives.size() - 1);
}

}  // namespace

Nest nest_of(const std::vector<Item>& items, size_t limit) {
  const std::vector<Life> lives = lives_in(items, limit);
  const size_t turn = peak_of(lives, limit);
  std::vector<Life> over;
  double bytes = 0, all = 0;
  for (const Life& life : lives) {
    all += static_cast<double>(life.bytes);
    if (life.begin > turn || life.end <= turn) continue;
    bytes += static_cast<double>(life.bytes);
    over.push_back(life);
  }
  if (bytes < kMostShare * all || !is_nest(over, turn)) return {};
  return {turn, latest_end(over)};
}

}  // namespace tandem::dag
