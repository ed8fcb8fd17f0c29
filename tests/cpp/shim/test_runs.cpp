// Room that is handed out in runs, checked against a list of each unit's owner.
#include "runs.h"

#include <map>
#include <random>
#include <set>
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

// Units by address, with their owners.
class Model {
 public:
  // Closes units. Free ones vanish at once, and the others when their owner gives them back.
  void close(uint64_t at, uint64_t bytes) {
    for (; bytes; at += kUnit, bytes -= kUnit) {
      closed_.insert(at);
      if (owner_.at(at) == kFree) owner_.erase(at);
    }
  }
  [[nodiscard]] bool is_free(uint64_t at, uint64_t bytes) const {
    for (; bytes; at += kUnit, bytes -= kUnit) {
      if (owner_.at(at) != kFree) return false;
    }
    return true;
  }
  void remove(uint64_t at, uint64_t bytes) {
    for (; bytes; at += kUnit, bytes -= kUnit) owner_.erase(at);
  }
  void add(uint64_t at, uint64_t bytes) {
    for (; bytes; at += kUnit, bytes -= kUnit) CHECK(owner_.emplace(at, kFree).second);
  }
  void take(const std::vector<Run>& runs, uint32_t whose) {
    for (const Run& run : runs) {
      for (uint64_t at = run.at; at < run.at + run.bytes; at += kUnit) {
        CHECK_EQ(owner_.at(at), kFree);  // it exists, and nobody has it
        owner_[at] = whose;
      }
    }
  }
  void give_back(uint32_t whose) {
    for (auto unit = owner_.begin(); unit != owner_.end();) {
      if (unit->second == whose) unit->second = kFree;
      const bool gone = unit->second == kFree && closed_.count(unit->first);
      unit = gone ? owner_.erase(unit) : std::next(unit);
    }
  }
  [[nodiscard]] uint64_t closed_bytes() const {
    uint64_t bytes = 0;
    for (const auto& [at, owner] : owner_) bytes += closed_.count(at) ? kUnit : 0;
    return bytes;
  }
  [[nodiscard]] uint64_t bytes_of(uint32_t whose) const {
    uint64_t bytes = 0;
    for (const auto& [at, owner] : owner_) bytes += owner == whose ? kUnit : 0;
    return bytes;
  }
  // Adjacent units form one run.
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
  std::set<uint64_t> closed_;
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

TEST(a_closed_room_gives_nothing_out_and_ends_when_all_of_it_is_back) {
  Runs room;
  CHECK(room.add(kUnit, 4 * kUnit));
  CHECK(room.add(6 * kUnit, 4 * kUnit));
  const uint32_t home = room.take(2 * kUnit);
  CHECK(room.close(kUnit, 4 * kUnit));
  CHECK(room.is_closed(4 * kUnit));
  CHECK(!room.is_closed(6 * kUnit));
  CHECK_EQ(room.free_bytes(), 4 * kUnit);
  CHECK_EQ(room.closed_bytes(), 2 * kUnit);
  CHECK_EQ(room.take(5 * kUnit), 0u);
  const uint32_t other = room.take(4 * kUnit);
  CHECK_EQ(runs_of(room, other)[0].at, 6 * kUnit);
  room.give_back(home);
  CHECK_EQ(room.free_bytes(), 0u);
  CHECK_EQ(room.out_of_closed(kUnit), 0u);
  CHECK(!room.is_closed(kUnit));
}

// Taken room has one owner, nothing is refused for which there is room, and adjacent room is one
// run.
TEST(random_homes_are_what_a_list_of_units_says) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    Runs room;
    Model model;
    std::map<uint32_t, uint32_t> homes;  // owner -> first link
    std::vector<Run> rooms;
    int removed = 0;
    uint64_t end = 100 * kUnit;
    for (uint32_t step = 1; step <= 1000; ++step) {
      if (end < 600 * kUnit && random() % 20 == 0) {
        const uint64_t bytes = (1 + random() % 40) * kUnit;
        const uint64_t at = end + kUnit;
        CHECK(room.add(at, bytes));
        model.add(at, bytes);
        rooms.push_back({at, bytes});
        end = at + bytes;
      } else if (!rooms.empty() && random() % 60 == 0) {
        const size_t any = random() % rooms.size();
        CHECK(room.close(rooms[any].at, rooms[any].bytes));
        model.close(rooms[any].at, rooms[any].bytes);
        rooms.erase(rooms.begin() + static_cast<long>(any));
      } else if (!rooms.empty() && random() % 20 == 0) {
        const size_t any = random() % rooms.size();
        const auto [at, bytes] = rooms[any];
        const bool is_free = model.is_free(at, bytes);
        CHECK_EQ(room.remove(at, bytes), is_free);
        if (!is_free) continue;
        model.remove(at, bytes);
        rooms.erase(rooms.begin() + static_cast<long>(any));
        ++removed;
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
      CHECK_EQ(room.closed_bytes(), model.closed_bytes());
      CHECK_EQ(room.free_runs(), model.free_runs().size());
    }
    CHECK(removed);
  }
}
