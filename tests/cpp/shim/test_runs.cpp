// Room that is handed out in runs, against a list of who has each unit.
#include "runs.h"

#include <map>
#include <random>
#include <vector>

#include "check.h"

using namespace tandem::shim::swap;

namespace {

constexpr uint64_t kUnit = 2 << 20;
constexpr uint32_t kFree = 0;

std::vector<Run> runs_of(const Runs& room, uint32_t home) {
  std::vector<Run> found;
  for (Run run{}; home;) {
    home = room.look_at(home, &run);
    found.push_back(run);
  }
  return found;
}

// Units by address, and whose they are.
class Model {
 public:
  void add(uint64_t at, uint64_t bytes) {
    for (; bytes; at += kUnit, bytes -= kUnit) CHECK(owner_.emplace(at, kFree).second);
  }
  void take(const std::vector<Run>& runs, uint32_t whose) {
    for (const Run& run : runs) {
      for (uint64_t at = run.at; at < run.at + run.bytes; at += kUnit) {
        CHECK_EQ(owner_.at(at), kFree);  // nobody has it, and it is there
        owner_[at] = whose;
      }
    }
  }
  void give_back(uint32_t whose) {
    for (auto& [at, owner] : owner_) {
      if (owner == whose) owner = kFree;
    }
  }
  [[nodiscard]] uint64_t bytes_of(uint32_t whose) const {
    uint64_t bytes = 0;
    for (const auto& [at, owner] : owner_) bytes += owner == whose ? kUnit : 0;
    return bytes;
  }
  // Units that touch are one run.
  [[nodiscard]] std::vector<Run> free_runs() const {
    std::vector<Run> found;
    for (const auto& [at, owner] : owner_) {
      if (owner != kFree) continue;
      if (found.empty() || found.back().at + found.back().bytes != at) found.push_back({at, 0});
      found.back().bytes += kUnit;
    }
    return found;
  }

 private:
  std::map<uint64_t, uint32_t> owner_;
};

bool has_run(const Model& model, uint64_t bytes) {
  for (const Run& run : model.free_runs()) {
    if (run.bytes >= bytes) return true;
  }
  return false;
}

}  // namespace

TEST(a_home_is_in_one_run_where_there_is_one) {
  Runs room;
  CHECK(room.add(kUnit, kUnit));
  CHECK(room.add(8 * kUnit, 4 * kUnit));
  const std::vector<Run> runs = runs_of(room, room.take(3 * kUnit));
  CHECK_EQ(runs.size(), 1u);
  CHECK_EQ(runs[0].at, 8 * kUnit);
}

TEST(a_home_is_in_several_where_there_is_none) {
  Runs room;
  for (const uint64_t at : {1u, 3u, 5u}) CHECK(room.add(at * kUnit, kUnit));
  CHECK_EQ(room.take(4 * kUnit), 0u);
  const std::vector<Run> runs = runs_of(room, room.take(3 * kUnit));
  CHECK_EQ(runs.size(), 3u);
  CHECK_EQ(room.free_bytes(), 0u);
}

// What is taken is nobody else's, nothing is refused that there is room for, and what touches is one.
TEST(random_homes_are_what_a_list_of_units_says) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    Runs room;
    Model model;
    std::map<uint32_t, uint32_t> homes;  // whose -> first link
    uint64_t end = 100 * kUnit;
    for (uint32_t step = 1; step <= 1000; ++step) {
      if (end < 600 * kUnit && random() % 20 == 0) {
        const uint64_t bytes = (1 + random() % 40) * kUnit;
        const uint64_t at = end + random() % 2 * kUnit;  // touches the one before, or does not
        CHECK(room.add(at, bytes));
        model.add(at, bytes);
        end = at + bytes;
      } else if (!homes.empty() && random() % 2) {
        const auto any = std::next(homes.begin(), static_cast<long>(random() % homes.size()));
        room.give_back(any->second);
        model.give_back(any->first);
        homes.erase(any);
      } else {
        const uint64_t bytes = (1 + random() % 40) * kUnit;
        const uint32_t home = room.take(bytes);
        CHECK_EQ(home != 0, bytes <= model.bytes_of(kFree));
        if (!home) continue;
        const std::vector<Run> runs = runs_of(room, home);
        CHECK_EQ(runs.size() == 1, has_run(model, bytes));
        model.take(runs, step);
        CHECK_EQ(model.bytes_of(step), bytes);
        homes[step] = home;
      }
      CHECK_EQ(room.free_bytes(), model.bytes_of(kFree));
      CHECK_EQ(room.free_runs(), model.free_runs().size());
    }
  }
}
