// A stretch of what a process did, kept whole for those who want to see its structure: from the end
// of one iteration to the end of another, or, if no iteration ends for long, whatever there was.
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
  uint64_t first_iteration = 0;      // number of iteration ends when it began
  uint64_t iterations = 0;           // whole iterations in it; 0 = not known
  uint64_t lost = 0;                 // records overwritten before they were read
  bool is_cut = false;               // it went on after the last record kept
  uint64_t busy_ns = 0;              // time in which the process was busy, as rounds saw it,
  uint64_t shared_ns = 0;            // and in which other groups were busy, too
  std::vector<shm::Record> records;  // sorted by dag::in_order; ticks are ns
  LiveMemory memory;                 // as of before the first record
};

// Takes one window at a time, when somebody asks for one: that of the first iteration in which the
// durations of all launches are known for the SMs that they ran on, if one comes in time. Used by
// one thread.
//
// "In time" means within kLongestNs or kLongestIterations of the request, whichever is later: that
// covers the rest of the current iteration, one in which durations are measured and one that is
// recorded. The taker waits longer only while more and more durations become known, since some
// launches are never measured.
class WindowTaker {
 public:
  static constexpr size_t kMaxRecords = 32768;  // 2 MiB
  static constexpr uint64_t kLongestNs = 5'000'000'000;
  static constexpr uint64_t kLongestIterations = 4;
  static constexpr uint64_t kMostNs = 60'000'000'000;  // at most, for kLongestIterations
  // If no further duration became known in this many consecutive iterations and this much time,
  // none will. The time is for iterations so short that many of them pass before a sample has been
  // read.
  static constexpr uint64_t kFruitless = 16;
  static constexpr uint64_t kFruitlessNs = 100'000'000;

  // Starts to take a window, unless one is being taken. `memory` is what is allocated by now.
  void want(uint64_t now_ns, const LiveMemory& memory = {});
  // Like want, for a window together with a sample. Discards what was taken so far, which lacks the
  // sample.
  void want_sampled(uint64_t now_ns, const LiveMemory& memory = {});
  // True if a window with a sample is being taken.
  bool wants_sampled() const { return taking_ && is_sampled_; }
  bool wanted() const { return taking_ != nullptr; }

  // Call in each round: take() with what was read, ticks in ns, then look() with how many
  // iterations have ended so far, when the newest ended, and how long they usually are (0 = not
  // known).
  void take(const shm::Record* records, size_t count, uint64_t lost);
  // The process was busy in this stretch, with or without others. Stretches come in order.
  void charge(uint64_t begin_ns, uint64_t end_ns, bool is_shared);
  void look(uint64_t iterations, uint64_t last_end_ns, uint64_t usual_ns, uint64_t now_ns);

  // The newest complete window; null if there is none.
  std::shared_ptr<const Window> newest() const { return newest_; }
  // Returns the newest window requested with a sample, once; null if there is none.
  std::shared_ptr<const Window> take_sampled() { return std::move(sampled_); }

 private:
  void begin(uint64_t iterations, uint64_t end_ns);
  // Tells whether to wait for an iteration with fewer launches whose time on their SMs is unknown.
  // The current one ends at `end_ns`.
  bool will_do_better(uint64_t iterations, uint64_t end_ns);
  void finish(uint64_t iterations, uint64_t end_ns);
  void count_busy();

  struct Stretch {
    uint64_t begin_ns, end_ns;
    bool is_shared;
  };

  // Beyond this, further stretches are merged into the last one, which is shared if any of them
  // was.
  static constexpr size_t kMostStretches = 4096;

  std::unique_ptr<Window> taking_;
  bool is_sampled_ = false;  // it is taken together with a sample
  std::vector<Stretch> busy_;
  size_t ordered_ = 0;  // records sorted so far, from the first on
  uint64_t wanted_ns_ = 0;
  uint64_t seen_ = 0;    // ends of iterations at the request, or when the window began
  bool looked_ = false;  // seen_ and begins_after_ns_ are known
  // Iterations that ended by then do not count: before the first look they may have ended before
  // the request, and later the window began at such an end.
  uint64_t begins_after_ns_ = 0;
  bool has_begun_ = false;  // at the end of an iteration
  // The fewest launches with times from other SMs in an iteration so far, and when that was.
  size_t fewest_stale_ = 0;
  uint64_t fewest_at_ = 0;
  uint64_t fewest_ns_ = 0;
  std::shared_ptr<const Window> newest_;
  std::shared_ptr<const Window> sampled_;
};

}  // namespace tandem::daemon
