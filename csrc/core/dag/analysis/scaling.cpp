#include "dag/analysis/scaling.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

#include "dag/analysis/held.h"
#include "dag/analysis/replay.h"
#include "dag/analysis/sm_shares.h"

namespace tandem::dag::analysis {
namespace {

constexpr double kMostKernels = 16, kMostTransfers = 8;  // limits of Scales
constexpr int kBisections = 14;

// What each kernel of the window would have taken alone: its time in the schedule, weighted by the
// SMs that earlier kernels left to it. Returns nothing if more than kMostAtOnce ran at once.
std::optional<std::vector<double>> works_ns(const Window& window, const Schedule& schedule,
                                            const Recording& recording, const SmLimits& limits) {
  struct Change {
    uint64_t at_ns;
    bool begins;  // ends come first
    size_t task;
    bool operator<(const Change& other) const {
      return std::tie(at_ns, begins, task) < std::tie(other.at_ns, other.begins, other.task);
    }
  };
  std::vector<double> out(window.size());
  std::vector<Change> changes;
  for (size_t task = 0; task < window.size(); ++task) {
    const Times& times = schedule.at(window.first + task);
    if (!is_kernel(window.op(window.first + task).kind) || times.length() == 0) continue;
    changes.push_back({times.start_ns, true, task});
    changes.push_back({times.end_ns, false, task});
  }
  std::sort(changes.begin(), changes.end());
  std::vector<Running> running;
  uint64_t now_ns = 0;
  for (const Change& change : changes) {
    for (const Running& kernel : running)
      out[kernel.task] += kernel.rate * static_cast<double>(change.at_ns - now_ns);
    now_ns = change.at_ns;
    if (change.begins) {
      if (running.size() == kMostAtOnce) return std::nullopt;
      running.push_back({change.task, grid_of(window.op(window.first + change.task)), 0, 0});
    } else {
      running.erase(std::find_if(running.begin(), running.end(), [&](const Running& kernel) {
        return kernel.task == change.task;
      }));
    }
    share_sms(&running, limits, recording.sms, recording.sms, 0);
  }
  return out;
}

// Times in which the job was held back and had nothing on the GPU. While it has something there,
// being held costs nothing: for a host that runs ahead, a full window means no more than that.
std::vector<Times> lost(const Window& window, const Schedule& schedule,
                        const std::vector<Times>& held) {
  if (held.empty()) return {};
  std::vector<Times> busy;
  for (NodeId id = window.first; id < window.last; ++id)
    if (runs_on_gpu(window.op(id).kind)) busy.push_back(schedule.at(id));
  return without(held, united(std::move(busy)));
}

// Times in which the job asked for nothing and nothing that it had asked for was in flight.
std::vector<Times> pauses(const Window& window, const Schedule& schedule,
                          const Recording& recording) {
  if (recording.pause_ns == 0) return {};
  std::vector<Times> asked;
  for (NodeId id = window.first; id < window.last; ++id) {
    const Operation& op = window.op(id);
    const uint64_t handed_ns = schedule.handed(id);
    // A copy that the host waits for is recorded when it has ended.
    const bool has_ended = is_transfer(op.kind) && holds_host(op);
    asked.push_back({has_ended ? minus(handed_ns, op.duration_ns) : handed_ns,
                     std::max(handed_ns, schedule.at(id).end_ns)});
  }
  std::vector<Times> found =
      without({{recording.begin_ns, recording.end_ns}}, united(std::move(asked)));
  found.erase(std::remove_if(found.begin(), found.end(),
                             [&](const Times& one) { return one.length() < recording.pause_ns; }),
              found.end());
  return found;
}

// Returns the recording with pauses counted as time in which the job was held back.
Recording without_pauses(const Window& window, const Schedule& schedule, Recording recording) {
  const std::vector<Times> found = pauses(window, schedule, recording);
  recording.held.insert(recording.held.end(), found.begin(), found.end());
  recording.held = united(std::move(recording.held));
  return recording;
}

// The thread's time on the host since `since_ns`, without the time in which it was held back.
double thought_ns(const Recording& recording, uint64_t since_ns, uint64_t until_ns) {
  return static_cast<double>(
      minus(minus(until_ns, since_ns), held_between(recording.held, since_ns, until_ns)));
}

Replay replay_of(const Window& window, const Recording& recording, const std::vector<double>& works,
                 const SmLimits& limits) {
  std::vector<Task> tasks(window.size());
  std::vector<uint64_t> free_ns;  // when each thread started to think
  for (size_t i = 0; i < window.size(); ++i) {
    const Operation& op = window.op(window.first + i);
    const size_t thread = Replay::thread_of(op);
    if (thread >= free_ns.size()) free_ns.resize(thread + 1, recording.begin_ns);
    Task& task = tasks[i];
    task.grid = grid_of(op);
    task.on_sms = is_kernel(op.kind);
    task.is_transfer = is_transfer(op.kind);
    task.holds_host = holds_host(op);
    if (task.on_sms) task.work_ns = works[i];
    else if (!is_wait(op.kind)) task.work_ns = static_cast<double>(op.duration_ns);
    task.think_ns = thought_ns(recording, free_ns[thread], op.submitted_ns);
    const uint64_t held_host_ns = task.holds_host ? op.duration_ns : 0;
    free_ns[thread] = std::max(free_ns[thread], plus(op.submitted_ns, held_host_ns));
  }
  std::vector<double> rests_ns;
  for (const uint64_t since_ns : free_ns)
    rests_ns.push_back(thought_ns(recording, since_ns, recording.end_ns));
  return {window, std::move(tasks), std::move(rests_ns), limits, recording.sms};
}

// Returns the factor, from 1 / `most` to `most`, for which `length_ns` gives the wanted length, or
// the nearest there is. The length must grow with the factor.
template <class Length>
double factor_for(double wanted_ns, double most, Length length_ns) {
  const bool is_longer = length_ns(1) < wanted_ns;
  double inside = 1, outside = is_longer ? most : 1 / most;
  for (int i = 0; i < kBisections; ++i) {
    const double middle = (inside + outside) / 2;
    const double found_ns = length_ns(middle);
    if (is_longer ? found_ns < wanted_ns : found_ns > wanted_ns) inside = middle;
    else outside = middle;
  }
  return inside;
}

void count(const Window& window, const SmLimits& limits, uint32_t sms, Scaling* out) {
  for (NodeId id = window.first; id < window.last; ++id) {
    const Operation& op = window.op(id);
    if (!runs_on_gpu(op.kind)) continue;
    ++out->operations;
    out->untimed += op.duration_ns == 0;
    if (!is_kernel(op.kind)) continue;
    out->kernel_ns = plus(out->kernel_ns, op.duration_ns);
    if (op.blocks == 0) out->gridless_ns = plus(out->gridless_ns, op.duration_ns);
    const uint32_t demand = sm_demand(grid_of(op), limits, sms);
    out->demand_ns += static_cast<double>(op.duration_ns) * demand / sms;
  }
}

uint64_t whole_ns(double ns) {
  return ns < 9e18 ? static_cast<uint64_t>(ns + 0.5) : UINT64_MAX / 2;
}

}  // namespace

Scaling scaling(const Window& window, const Recording& whole,
                const std::vector<uint32_t>& sm_counts, double gamma, const SmLimits& limits) {
  Scaling out;
  count(window, limits, whole.sms, &out);
  const Schedule schedule = reconstruct(window, window.first, {});
  const Recording recording = without_pauses(window, schedule, whole);
  const auto lost_ns =
      held_between(lost(window, schedule, recording.held), recording.begin_ns, recording.end_ns);
  out.recorded_ns = minus(minus(recording.end_ns, recording.begin_ns), lost_ns);
  out.length_ns.resize(sm_counts.size());
  const auto works = works_ns(window, schedule, recording, limits);
  out.is_crowded = !works;
  if (out.is_crowded) return out;
  const Replay replay = replay_of(window, recording, *works, limits);
  const double recorded_ns = static_cast<double>(out.recorded_ns);
  Scales scales;
  const auto length_ns = [&](const Scales& tried) {
    return replay.length_ns(recording.sms, gamma, tried);
  };
  scales.transfers =
      factor_for(recorded_ns, kMostTransfers, [&](double tried) { return length_ns({1, tried}); });
  out.reconstructed_ns = whole_ns(length_ns(scales));
  scales.kernels = factor_for(recorded_ns, kMostKernels,
                              [&](double tried) { return length_ns({tried, scales.transfers}); });
  for (size_t i = 0; i < sm_counts.size(); ++i) {
    const double told_ns = replay.length_ns(sm_counts[i], gamma, scales);
    out.is_crowded |= told_ns == HUGE_VAL;
    out.length_ns[i] = whole_ns(told_ns);
  }
  return out;
}

}  // namespace tandem::dag::analysis
