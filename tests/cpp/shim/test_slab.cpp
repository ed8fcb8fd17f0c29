// The occupied parts of a slab, against a list of what was handed out.
#include "slab.h"

#include <sys/mman.h>

#include <iterator>
#include <map>
#include <random>

#include "check.h"

using namespace tandem::shim::swap;

namespace {

class Pages {
 public:
  Pages()
      : at_(mmap(nullptr, sizeof(Slab), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                 0)) {}
  ~Pages() { munmap(at_, sizeof(Slab)); }
  Slab& operator*() const { return *static_cast<Slab*>(at_); }

 private:
  void* at_;
};

uint32_t taken(Slab& slab, uint32_t bytes, uint32_t number = 1) {
  uint32_t at = 0;
  CHECK(slab.take(bytes, number, &at));
  return at;
}

}  // namespace

TEST(parts_begin_where_cuMemAlloc_would_let_them) {
  const Pages pages;
  Slab& slab = *pages;
  CHECK_EQ(taken(slab, 1), 0u);
  CHECK_EQ(taken(slab, 513), 512u);
  CHECK_EQ(taken(slab, 512), 1536u);
}

TEST(a_byte_is_known_by_its_part_and_one_behind_it_by_none) {
  const Pages pages;
  Slab& slab = *pages;
  taken(slab, 100'000, 7);
  const uint32_t at = taken(slab, 300, 8);
  CHECK_EQ(slab.part_at(99'999).number, 7u);
  CHECK_EQ(slab.part_at(99'999).at, 0u);
  CHECK_EQ(slab.part_at(at + 299).bytes, 300u);
  CHECK_EQ(slab.part_at(at + 300).bytes, 0u);
  CHECK_EQ(slab.part_at(at + 512).bytes, 0u);
  CHECK_EQ(slab.part_at(Slab::kBytes).bytes, 0u);
}

TEST(only_the_begin_of_a_part_gives_it_back_and_once) {
  const Pages pages;
  Slab& slab = *pages;
  const uint32_t at = taken(slab, 1000);
  CHECK(!slab.give_back(at + 256));
  CHECK(!slab.give_back(at + 1));
  CHECK(slab.give_back(at));
  CHECK(!slab.give_back(at));
  CHECK(slab.is_empty());
}

TEST(a_full_slab_says_so_until_something_comes_back) {
  const Pages pages;
  Slab& slab = *pages;
  uint32_t at = 0;
  taken(slab, Slab::kBytes / 2);
  const uint32_t half = taken(slab, Slab::kBytes / 2);
  CHECK(!slab.take(1, 1, &at));
  CHECK(slab.give_back(half));
  CHECK(!slab.take(Slab::kBytes / 2 + 1, 1, &at));
  CHECK_EQ(taken(slab, Slab::kBytes / 2), half);
}

// Parts are where the list says, nothing overlaps, and no room that exists is refused.
TEST(random_parts_are_where_a_list_has_them) {
  const Pages pages;
  Slab& slab = *pages;
  std::mt19937 random(1);
  std::map<uint32_t, uint32_t> parts;  // begin -> bytes
  const auto largest_gap = [&] {
    uint32_t largest = 0, end = 0;
    for (const auto& [at, bytes] : parts) {
      largest = std::max(largest, at - end);
      end = (at + bytes + 511) / 512 * 512;
    }
    return std::max(largest, Slab::kBytes - end);
  };
  for (uint32_t step = 1; step <= 20'000; ++step) {
    if (!parts.empty() && random() % 2) {
      const auto any = std::next(parts.begin(), static_cast<long>(random() % parts.size()));
      const Slab::Part found =
          slab.part_at(any->first + static_cast<uint32_t>(random() % any->second));
      CHECK_EQ(found.at, any->first);
      CHECK_EQ(found.bytes, any->second);
      CHECK(slab.give_back(any->first));
      parts.erase(any);
      continue;
    }
    const auto bytes = static_cast<uint32_t>(1 + random() % (random() % 8 ? 20'000u : 1'000'000u));
    uint32_t at = 0;
    const bool fits = (bytes + 511) / 512 * 512 <= largest_gap();
    CHECK_EQ(slab.take(bytes, step, &at), fits);
    if (!fits) continue;
    const auto after = parts.lower_bound(at);
    CHECK(after == parts.end() || at + bytes <= after->first);
    CHECK(after == parts.begin() || std::prev(after)->first + std::prev(after)->second <= at);
    parts[at] = bytes;
  }
  size_t seen = 0;
  CHECK(!slab.any_part([&](const Slab::Part& part) {
    ++seen;
    return parts.at(part.at) != part.bytes;
  }));
  CHECK_EQ(seen, parts.size());
  for (const auto& [at, bytes] : parts) CHECK(slab.give_back(at));
  CHECK(slab.is_empty());
}
