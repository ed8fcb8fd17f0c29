// A window done again on another number of SMs, as scaling.h says.
#pragma once

#include <cstdint>
#include <vector>

#include "dag/analysis/sm_shares.h"

namespace tandem::dag::analysis {

// What the record says of a node.
struct Task {
  Grid grid;              // of kernels
  bool on_sms = false;    // it takes SMs
  bool is_transfer = false;
  bool holds_host = false;
  double work_ns = 0;     // alone; of waits 0
  double think_ns = 0;    // of its thread, before it
};

// How many times what tasks say their work really is.
struct Scales {
  double kernels = 1;  // and graphs
  double transfers = 1;
};

class Replay {
 public:
  Replay(const Window& window, std::vector<Task> tasks, std::vector<double> rests_ns,
         const SmLimits& limits, uint32_t recorded_sms);

  // The number of the thread in `rests_ns`, which says how long each thinks when it has done its last.
  static size_t thread_of(const Operation& op) { return op.thread == kNone ? 0 : op.thread + 1; }

  // How much longer twice in a row takes than once; HUGE_VAL: more than kMostAtOnce kernels could run
  // at a time.
  double length_ns(uint32_t sms, double gamma, const Scales& scales) const;

 private:
  friend class Run;
  const std::vector<Task> tasks_;
  const std::vector<double> rests_ns_;
  const SmLimits limits_;
  const uint32_t recorded_sms_;
  std::vector<std::vector<size_t>> threads_;   // their tasks
  std::vector<size_t> thread_;                 // of each task
  std::vector<size_t> first_after_;            // of a task: where in after_
  std::vector<size_t> after_;                  // tasks that wait for it
  std::vector<size_t> next_round_;             // that goes on in its stream, the second time; kLast
  std::vector<uint32_t> before_;               // for how many others a task waits
  std::vector<bool> is_first_;                 // of its stream
  static constexpr size_t kLast = SIZE_MAX;
};

}  // namespace tandem::dag::analysis
