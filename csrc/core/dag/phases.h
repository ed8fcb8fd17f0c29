// Forward, backward and update parts of a process's iterations, found as its records come in.
//
// Iterations end where the program marks a step, or else where an IterationFinder says so. One in
// `sample_every` is kept and split: by the program's own phase marks, else by split(). What split()
// finds is reported when three in a row agree, and withdrawn when it fails twice in a row.
//
// Several threads may take part, for example if one of them launches the backward pass: their
// records are sorted by ticks before an iteration is split. Used by one thread. Bounded memory; a
// few instructions per record while none is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dag/split.h"
#include "shm_layout.h"

namespace tandem::dag {

// Shares of the predicted GPU time of an iteration's launches, in thousandths; all 0 = not known.
struct PhaseShares {
  uint16_t forward = 0;
  uint16_t backward = 0;
  uint16_t update = 0;
  bool marked = false;  // by the program itself
};

// Converts a record for split(); returns false if split() ignores it. Leaves `thread` and `begins`
// unchanged.
bool item_of(const shm::Record& record, Item* item);

class PhaseFinder {
 public:
  explicit PhaseFinder(uint32_t sample_every = 32) : sample_every_(sample_every) {}

  // Takes one record of a thread, in that thread's order.
  void take(uint16_t thread, const shm::Record& record) {
    if (state_ != State::kOff || record.kind == static_cast<uint8_t>(shm::RecordKind::kMark))
      take_wanted(thread, record);
  }
  // An iteration of this thread ended at `ticks`, before its last `launches_since` launches.
  void end(uint16_t thread, uint64_t launches_since, uint64_t ticks);
  // Records are missing.
  void gap();
  // Everything submitted before the last call has been taken, from all threads.
  void settle();

  const PhaseShares& shares() const { return shares_; }

 private:
  enum class State : uint8_t { kOff, kBefore, kWithin, kComplete };

  void take_wanted(uint16_t thread, const shm::Record& record);
  void keep(uint16_t thread, const shm::Record& record);
  void take_step(uint16_t thread, uint64_t ticks);
  void put(const Item& item);
  void pass_beginning();
  size_t beginning(uint16_t thread, uint64_t launches_since) const;
  std::vector<Item> iteration();
  void judge(const std::vector<Item>& items);
  void stop();

  uint32_t sample_every_;
  State state_ = State::kOff;
  bool by_steps_ = false;  // the program marks its iterations
  uint32_t skip_ = 0;      // iterations yet to skip
  uint32_t settled_ = 0;   // calls since the iteration was complete
  std::vector<Item> items_;

  PhaseShares last_, shares_;
  uint32_t agreeing_ = 0;  // in a row
  uint32_t failing_ = 0;   // in a row
};

}  // namespace tandem::dag
