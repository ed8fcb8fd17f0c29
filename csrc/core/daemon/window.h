// A stretch of what a process did, kept whole for those who want to see its structure: from the end
// of one iteration to that of another, or, where none ends for long, whatever there was.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/live_memory.h"
#include "shm_layout.h"

namespace tandem::daemon {

struct Window {
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  uint64_t first_iteration = 0;  // that ended so many ends of iterations after the first one
  uint64_t iterations = 0;       // whole ones in it; 0 = none is known
  uint64_t lost = 0;             // records that were overwritten before they were read
  bool is_cut = false;           // it went on after the last record kept
  uint64_t busy_ns = 0;          // of it, in which the process was busy, as rounds saw it,
  uint64_t shared_ns = 0;        // and other groups with it
  std::vector<shm::Record> records;  // by dag::in_order; ticks are ns
  LiveMemory memory;             // before the first of them
};

// Takes one window at a time when somebody asks for one: of the first iteration in which durations of
// all launches are known on the SMs that they ran on, if one comes in time. Of one thread.
//
// In time is before kLongestNs or kLongestIterations are over since it was asked for, whichever is
// later: the rest of the iteration under way, one in which the durations are measured and one that is
// recorded. And while more and more durations get known: some launches are never measured.
class WindowTaker {
 public:
  static constexpr size_t kMaxRecords = 32768;  // 2 MiB
  static constexpr uint64_t kLongestNs = 5'000'000'000;
  static constexpr uint64_t kLongestIterations = 4;
  static constexpr uint64_t kMostNs = 60'000'000'000;  // of these
  // In so many iterations, and so long, in a row no more durations got known: none will. The time is
  // for iterations so short that many of them pass before a sample has been read.
  static constexpr uint64_t kFruitless = 16;
  static constexpr uint64_t kFruitlessNs = 100'000'000;

  // Begins to look, unless it does already. `memory` is what is allocated by then.
  void want(uint64_t now_ns, const LiveMemory& memory = {});
  // The same together with a sample, which what was taken so far does not have: that is forgotten.
  void want_sampled(uint64_t now_ns, const LiveMemory& memory = {});
  // Whether such a one is being taken.
  bool wants_sampled() const { return taking_ && is_sampled_; }
  bool wanted() const { return taking_ != nullptr; }

  // Each round: what was read, with ticks in ns, and then how many iterations have ended so far, when
  // the newest did, and how long they usually are (0 = not known).
  void take(const shm::Record* records, size_t count, uint64_t lost);
  // The process was busy then, and others with it or not. Stretches come in order.
  void charge(uint64_t begin_ns, uint64_t end_ns, bool is_shared);
  void look(uint64_t iterations, uint64_t last_end_ns, uint64_t usual_ns, uint64_t now_ns);

  // The newest one that is complete; null if there is none.
  std::shared_ptr<const Window> newest() const { return newest_; }
  // The newest that was asked for together with a sample, once; null if there is none.
  std::shared_ptr<const Window> take_sampled() { return std::move(sampled_); }

 private:
  void begin(uint64_t iterations, uint64_t end_ns);
  // Whether to wait for one that has fewer launches, if any, before its end of which no time on the
  // SMs that they ran on was known.
  bool will_do_better(uint64_t iterations, uint64_t end_ns);
  void finish(uint64_t iterations, uint64_t end_ns);
  void count_busy();

  struct Stretch {
    uint64_t begin_ns, end_ns;
    bool is_shared;
  };

  // Of more stretches those that come last are one, which is shared if one of them was.
  static constexpr size_t kMostStretches = 4096;

  std::unique_ptr<Window> taking_;
  bool is_sampled_ = false;  // that one is taken together with a sample
  std::vector<Stretch> busy_;
  size_t ordered_ = 0;  // of the records, from the first on
  uint64_t wanted_ns_ = 0;
  uint64_t seen_ = 0;        // ends of iterations when it was asked for, or when the window began
  bool looked_ = false;      // seen_ and begins_after_ns_ are known
  // Ends of iterations until then are none of its own: before the first look they may have been before
  // it was asked for, and later it began with one.
  uint64_t begins_after_ns_ = 0;
  bool has_begun_ = false;   // at the end of an iteration
  // The fewest launches with times of other SMs in an iteration so far, and when that was.
  size_t fewest_stale_ = 0;
  uint64_t fewest_at_ = 0;
  uint64_t fewest_ns_ = 0;
  std::shared_ptr<const Window> newest_;
  std::shared_ptr<const Window> sampled_;
};

}  // namespace tandem::daemon
