// Replays a window on another number of SMs, by the rules of scaling.h.
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/sm_shares.h"

namespace tandem::dag::analysis {

// What the record says about a node.
struct Task {
  Grid grid;            // of kernels
  bool on_sms = false;  // it takes SMs
  bool is_transfer = false;
  bool holds_host = false;
  double work_ns = 0;   // when alone; 0 for waits
  double think_ns = 0;  // of its thread, before it
};

// Factors from the recorded work of tasks to their real work.
struct Scales {
  double kernels = 1;  // kernels and graphs
  double transfers = 1;
};

class Replay {
 public:
  Replay(const Window& window, std::vector<Task> tasks, std::vector<double> rests_ns,
         const SmLimits& limits, uint32_t recorded_sms);

  // Returns the thread's index in `rests_ns`, which says how long each thread thinks after its last
  // task.
  static size_t thread_of(const Operation& op) { return op.thread == kNone ? 0 : op.thread + 1; }

  // How much longer the window takes twice in a row than once; HUGE_VAL: more than kMostAtOnce
  // kernels could run at once.
  double length_ns(uint32_t sms, double gamma, const Scales& scales) const;

 private:
  friend class Run;
  const std::vector<Task> tasks_;
  const std::vector<double> rests_ns_;
  const SmLimits limits_;
  const uint32_t recorded_sms_;
  std::vector<std::vector<size_t>> threads_;  // tasks of each thread
  std::vector<size_t> thread_;                // of each task
  std::vector<size_t> first_after_;           // of each task: index in after_
  std::vector<size_t> after_;                 // tasks that wait for it
  std::vector<size_t> next_round_;            // next task of its stream in the second round; kLast
  std::vector<uint32_t> before_;              // how many others each task waits for
  std::vector<bool> is_first_;                // whether it is its stream's first
  static constexpr size_t kLast = SIZE_MAX;
};

}  // namespace tandem::dag::analysis
