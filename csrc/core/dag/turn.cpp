#include "dag/turn.h"

#include <algorithm>
#include <cmath>

namespace tandem::dag {
namespace {

constexpr size_t kEdge = 8;        // each side has at least 1/kEdge of the launches
constexpr double kInformed = 0.1;  // least information about the side, as part of all there is
constexpr size_t kPaired = 3;      // one in this many functions must have a counterpart
constexpr double kOwn = 0.12;      // least part of a backward pass in functions of its own

double x_log_x(double x) { return x > 0 ? x * std::log(x) : 0; }

// n times the entropy of a choice between two outcomes that occur n1 and n2 times, n = n1 + n2.
double entropy(size_t n1, size_t n2) {
  const auto a = static_cast<double>(n1), b = static_cast<double>(n2);
  return x_log_x(a + b) - x_log_x(a) - x_log_x(b);
}

// What is computed a number of times forward is differentiated as often. Two models in sequence,
// such as an encoder and a decoder, have different numbers of layers.
bool has_counterparts(const std::vector<uint32_t>& functions, size_t turn, size_t end,
                      size_t kinds) {
  std::vector<size_t> before(kinds), behind(kinds), derived;
  for (size_t i = 0; i < end; ++i) ++(i < turn ? before : behind)[functions[i]];
  for (size_t f = 0; f < kinds; ++f) {
    if (before[f] == 0 && behind[f] > 1) derived.push_back(behind[f]);
  }
  std::sort(derived.begin(), derived.end());
  size_t repeated = 0, paired = 0;
  for (const size_t times : before) {
    if (times < 2) continue;
    ++repeated;
    // Allows a small difference: where layers are recomputed, the turn comes one layer late.
    const size_t apart = 1 + times / kEdge;
    const auto least =
        std::lower_bound(derived.begin(), derived.end(), times - std::min(times, apart));
    paired += least != derived.end() && *least <= times + apart ? 1 : 0;
  }
  return paired != 0 && paired * kPaired >= repeated;
}

}  // namespace

size_t turn_of(const std::vector<uint32_t>& functions, size_t end, size_t kinds) {
  std::vector<size_t> before(kinds), behind(kinds);
  for (size_t i = 0; i < end; ++i) ++behind[functions[i]];
  double unknown = 0, best = 0;  // entropy of the side that remains when the function is known
  size_t turn = 0;
  for (size_t i = 0; i + 1 < end; ++i) {
    const uint32_t f = functions[i];
    unknown -= entropy(before[f], behind[f]);
    unknown += entropy(++before[f], --behind[f]);
    const size_t left = i + 1, right = end - left;
    if (std::min(left, right) * kEdge < end) continue;
    const double all = entropy(left, right), known = all - unknown;
    if (known < kInformed * all || known <= best) continue;
    best = known;
    turn = left;
  }
  return has_counterparts(functions, turn, end, kinds) ? turn : 0;
}

bool is_turn(const std::vector<uint32_t>& functions, size_t turn, size_t end, size_t kinds) {
  if (turn == 0 || end <= turn) return false;
  if (std::min(turn, end - turn) * kEdge < end) return false;
  std::vector<bool> seen(kinds);
  for (size_t i = 0; i < turn; ++i) seen[functions[i]] = true;
  size_t own = 0;
  for (size_t i = turn; i < end; ++i) own += seen[functions[i]] ? 0 : 1;
  return static_cast<double>(own) >= kOwn * static_cast<double>(end - turn);
}

}  // namespace tandem::dag
