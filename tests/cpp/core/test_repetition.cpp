#include "dag/repetition.h"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "check.h"

using namespace tandem::dag;

namespace {

constexpr size_t kCapacity = 64;

std::set<uint64_t> periods(const Repetitions& repetitions) {
  Repetitions::Found found[Repetitions::kMost];
  const size_t count = repetitions.going_on(found);
  std::set<uint64_t> out;
  for (size_t i = 0; i < count; ++i) out.insert(found[i].period);
  return out;
}

// Tells whether the sequence ends with its last `period` symbols twice in a row.
bool repeats(const std::vector<uint32_t>& symbols, uint64_t period) {
  if (symbols.size() < 2 * period) return false;
  for (uint64_t back = 0; back < period; ++back) {
    if (symbols[symbols.size() - 1 - back] != symbols[symbols.size() - 1 - back - period])
      return false;
  }
  return true;
}

}  // namespace

TEST(what_is_found_repeats_whatever_comes) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    Repetitions repetitions(kCapacity);
    std::vector<uint32_t> symbols, recent;
    for (int step = 0; step < 400; ++step) {
      if (random() % 100 == 0) {
        repetitions.interrupt();
        recent.clear();
        CHECK(periods(repetitions).empty());
      }
      // Loops of random length, with a stray symbol now and then.
      const uint32_t loop = 3 + seed % 17;
      const bool stray = random() % 50 == 0 || symbols.size() < loop;
      symbols.push_back(stray ? random() % 4 : symbols[symbols.size() - loop]);
      recent.push_back(symbols.back());
      repetitions.push(symbols.back());
      for (const uint64_t period : periods(repetitions)) CHECK(repeats(recent, period));
    }
  }
}

// A finder that only remembers for a while and then catches up knows as much of shorter loops.
TEST(what_was_only_remembered_is_caught_up_with) {
  size_t found = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    Repetitions always(kCapacity), sometimes(kCapacity);
    std::vector<uint32_t> symbols;
    uint32_t remembered = 0;
    for (int step = 0; step < 400; ++step) {
      if (random() % 150 == 0) {
        always.interrupt();
        sometimes.interrupt();
        remembered = 0;
      }
      const uint32_t loop = 7 + seed % 7;  // so long that all of its multiples are followed
      const bool stray = random() % 60 == 0 || symbols.size() < loop;
      symbols.push_back(stray ? random() % 4 : symbols[symbols.size() - loop]);
      always.push(symbols.back());
      const bool looks = step / 10 % 2 == 0;
      if (looks && remembered) {
        sometimes.catch_up();
        remembered = 0;
      }
      if (looks) sometimes.push(symbols.back());
      else sometimes.remember(symbols.back()), ++remembered;
      if (!looks) continue;
      for (uint64_t period = 1; period < kCapacity / 2; ++period) {
        CHECK(periods(sometimes).count(period) == periods(always).count(period));
        found += periods(always).count(period);
      }
    }
  }
  CHECK(found > 10'000);
}

// If more than half the capacity was only remembered, it looks only at the end. That is enough to
// find the loop that is going on.
TEST(much_that_was_only_remembered_is_looked_at_from_its_end) {
  Repetitions repetitions(kCapacity);
  std::vector<uint32_t> symbols;
  for (uint32_t i = 0; i < 200; ++i) {
    symbols.push_back(i < 150 ? i : i % 7);
    repetitions.remember(symbols.back());
  }
  CHECK(periods(repetitions).empty());

  repetitions.catch_up();

  CHECK(periods(repetitions).count(7) == 1);
  for (const uint64_t period : periods(repetitions)) CHECK(repeats(symbols, period));
}

TEST(a_loop_is_found_by_the_end_of_its_second_round) {
  constexpr uint32_t kLate = 8;  // symbols that short loops have to wait for
  for (uint32_t length = 7; length < kCapacity / 2; ++length) {
    Repetitions repetitions(kCapacity);
    for (uint32_t i = 0; i < 5; ++i) repetitions.push(1000 + i);  // earlier symbols
    for (uint32_t i = 0; i < std::max(2 * length, length + 6 + kLate); ++i)
      repetitions.push(i % length);
    CHECK_EQ(periods(repetitions).count(length), 1u);
  }
}

TEST(a_loop_of_loops_is_found_around_them) {
  Repetitions repetitions(256);
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < 4; ++i) repetitions.push(100 + i);
    for (uint32_t i = 0; i < 60; ++i) repetitions.push(i % 10);
  }
  CHECK(periods(repetitions).count(10) == 1);
  CHECK(periods(repetitions).count(64) == 1);
}

TEST(a_loop_longer_than_what_is_remembered_is_not_found) {
  Repetitions repetitions(kCapacity);
  for (uint32_t i = 0; i < 1000; ++i) repetitions.push(i % 100);
  CHECK(periods(repetitions).empty());
}
