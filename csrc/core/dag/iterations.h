// Finds the iterations of a program in what one of its threads submits, without being told.
//
// An iteration is the body of a loop in which the host takes part: it repeats and contains a wait
// of the host or a copy to the device. Where there is neither, it is what repeats for long. It
// begins where the host continues after its wait, preferably with the copy of the next batch.
//
//   found    after two repetitions in a row, symbol by symbol (four of very short ones); or after
//            four similar stretches between waits in a row, where shapes and so functions change
//   followed by a few symbols near its beginning that are unique within it, so that logging,
//            evaluation and longer iterations in between do not lose it
//   lost     when these have not occurred for the length of eight iterations
//
// Claims nothing about what does not repeat. Used by one thread. Bounded memory, constant work per
// record.
#pragma once

#include <cstdint>
#include <vector>

#include "dag/repetition.h"
#include "dag/usual.h"
#include "shm_layout.h"

namespace tandem::dag {

class IterationFinder {
 public:
  IterationFinder();

  // Takes one record, in the thread's order. Times are reported in the unit of record.ticks.
  void take(const shm::Record& record);
  // Records are missing between the last one and the next.
  void gap();

  bool found() const { return length_ != 0; }
  uint64_t ends() const { return ends_; }          // iterations that ended while found
  uint64_t last_end() const { return last_end_; }  // ticks
  uint64_t launches_since_end() const {
    return static_cast<uint32_t>(submitted_) - begin_.launches;
  }
  // True if the host waits in an iteration, or copies to the device.
  bool has_host() const { return has_host_; }
  uint64_t duration() const { return usual_.ticks(); }  // of the usual iteration; 0 = not known
  uint64_t launches() const { return launches_; }       // of the usual iteration
  uint64_t submitted() const { return submitted_; }     // launches so far

 private:
  static constexpr uint32_t kSketch = 16;
  static constexpr uint32_t kEmpty = UINT32_MAX;

  // What lies between two waits of the host: how it begins, and a sketch of its symbol triples.
  struct Stretch {
    uint32_t least[kSketch];  // hashes
    uint64_t symbols = 0;
    uint64_t gram = 0;      // of the symbols around its beginning
    uint64_t end_gram = 0;  // of its last symbols
    uint32_t second = 0;    // the last symbol of `gram`
    void clear();
    void add(uint32_t triple);
    bool is_like(const Stretch& other) const;
  };

  // The current iteration.
  struct Begin {
    uint64_t at = 0;  // its first symbol, counted from 1; 0 = not seen
    uint64_t ticks = 0;
    uint32_t launches = 0;  // before it, modulo 2^32
  };

  // A few consecutive symbols that identify the beginning of an iteration.
  struct Anchor {
    uint64_t gram = 0;    // hash of the symbols
    uint64_t offset = 0;  // symbols from the beginning to the last of them
    uint32_t last = 0;    // the last of them
  };

  // A loop with a wait is the best claim there is: while it is followed, no other is looked for.
  bool is_settled() const { return found() && has_wait_; }
  void push(uint32_t symbol, uint64_t ticks);
  void grow();
  void add_to_stretch();
  void end_stretch();
  void search();
  void claim_alike();
  void claim(uint64_t period);
  void follow();
  void arrive(const Begin& next);
  void end_iteration(const Begin& next);
  static bool is_sure(const Repetitions::Found& found);
  static bool is_explained(const Repetitions::Found& found, const Repetitions::Found* going_on,
                           size_t count);
  bool is_more(uint64_t period) const;
  bool host_takes_part(const Repetitions::Found& found) const;
  uint64_t beginning_in(uint64_t period) const;
  bool anchor_near(uint64_t beginning, uint64_t offset, uint64_t period, Anchor* anchor) const;
  Anchor anchor_at(uint64_t back, uint64_t offset) const;
  bool is_unique(uint64_t back, uint64_t period) const;
  uint64_t gram(uint64_t back) const;
  Begin begin_at(uint64_t back) const;

  struct Moment {
    uint64_t ticks;
    uint32_t launches;  // before it, modulo 2^32
    uint16_t waits;     // before it, modulo 2^16: fewer than that fit in moments_
    uint16_t ends;      // likewise for iterations
  };

  Repetitions symbols_;
  std::vector<Moment> moments_;  // of the newest symbols
  uint64_t settled_at_ = 0;      // symbols pushed when it was last settled
  uint64_t submitted_ = 0;
  uint32_t waits_ = 0;
  uint64_t last_wait_ = 0;  // counted from 1; 0 = never
  uint64_t last_host_ = 0;  // the last wait or copy to the device, counted from 1; 0 = never

  Stretch now_, before_;
  uint32_t alike_ = 0;

  // The claim.
  uint64_t length_ = 0;    // symbols of the usual iteration; 0 = no claim
  bool has_wait_ = false;  // the host waits in it
  bool has_host_ = false;  // the host waits, or copies to the device
  // One spans the beginning of an iteration, the other lies after it: what a program does now and
  // then, at the end of an iteration or early in it, hides only one of them.
  Anchor anchors_[2];
  bool after_wait_ = false;  // it begins where the host continues after a wait
  // Hash of the symbols up to the host's wait at the end; 0 = it does not end with a wait.
  uint64_t end_gram_ = 0;
  Begin begin_;
  uint64_t looked_since_ = 0;  // symbols pushed at the last gap; used while begin_ is not known
  uint64_t ends_ = 0;
  uint64_t last_end_ = 0;
  Usual usual_;
  uint64_t launches_ = 0;
};

}  // namespace tandem::dag
