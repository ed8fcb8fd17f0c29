#include "nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tandem::softgpu {
namespace {

constexpr size_t kLongestWord = 64;  // longer words are not typing mistakes

// Edit distance: the number of letters to insert, drop or replace to turn one word into the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1] ? 1 : 0);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::string did_you_mean(std::string_view typed, const std::vector<std::string_view>& words) {
  if (typed.empty() || typed.size() > kLongestWord) return {};
  std::string_view best;
  size_t best_distance = (typed.size() + 1) / 2 + 1;  // up to half of the letters may be wrong
  for (const std::string_view word : words) {
    const size_t found = distance(typed, word);
    if (found < best_distance) {
      best = word;
      best_distance = found;
    }
  }
  return best.empty() ? std::string() : " (did you mean '" + std::string(best) + "'?)";
}

}  // namespace tandem::softgpu
