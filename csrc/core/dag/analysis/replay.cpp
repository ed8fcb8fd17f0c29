#include "dag/analysis/replay.h"

#include <cmath>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace tandem::dag::analysis {

Replay::Replay(const Window& window, std::vector<Task> tasks, std::vector<double> rests_ns,
               const SmLimits& limits, uint32_t recorded_sms)
    : tasks_(std::move(tasks)),
      rests_ns_(std::move(rests_ns)),
      limits_(limits),
      recorded_sms_(recorded_sms),
      threads_(rests_ns_.size()),
      thread_(window.size()),
      first_after_(window.size() + 1),
      next_round_(window.size(), kLast),
      before_(window.size()),
      is_first_(window.size()) {
  std::unordered_map<uint32_t, std::pair<size_t, size_t>> streams;  // first task, last
  const auto each_edge = [&](auto see) {
    for (size_t task = 0; task < window.size(); ++task)
      window.graph.each_edge(window.first + task, [&](NodeId from, EdgeKind) {
        if (window.has(from)) see(from - window.first, task);
      });
  };
  for (size_t task = 0; task < window.size(); ++task) {
    const Operation& op = window.op(window.first + task);
    thread_[task] = thread_of(op);
    threads_[thread_[task]].push_back(task);
    if (op.stream != kNone) streams.try_emplace(op.stream, task, task).first->second.second = task;
  }
  for (const auto& [stream, ends] : streams) {
    is_first_[ends.first] = true;
    next_round_[ends.second] = ends.first;
  }
  each_edge([&](size_t from, size_t to) { ++first_after_[from + 1], ++before_[to]; });
  for (size_t task = 0; task < window.size(); ++task) first_after_[task + 1] += first_after_[task];
  after_.resize(first_after_.back());
  std::vector<size_t> place(first_after_.begin(), first_after_.end() - 1);
  each_edge([&](size_t from, size_t to) { after_[place[from]++] = to; });
}

// One replay of two rounds: a task of the second round has its number in the first, plus count_.
class Run {
 public:
  Run(const Replay& of, uint32_t sms, double gamma, const Scales& scales)
      : of_(of),
        sms_(sms),
        gamma_(gamma),
        scales_(scales),
        count_(of.tasks_.size()),
        before_(2 * count_) {
    for (size_t task = 0; task < count_; ++task) {
      before_[task] = of_.before_[task] + 1;  // plus one for its submission
      before_[count_ + task] = before_[task] + of_.is_first_[task];
    }
    places_.resize(of_.threads_.size());
  }

  double length_ns() {
    for (size_t thread = 0; thread < places_.size(); ++thread) go_on(thread, 0);
    while (!is_crowded() && step()) {
    }
    if (is_crowded()) return HUGE_VAL;
    return std::max(0.0, done_ns_[1] - done_ns_[0]);
  }

 private:
  enum class What : uint8_t { kEnd, kHandOver };
  using Due = std::tuple<double, size_t, What>;  // time, task

  const Task& task(size_t id) const { return of_.tasks_[id % count_]; }

  // Schedules the thread's next submission after its think time.
  void go_on(size_t thread, double now_ns) {
    const auto& own = of_.threads_[thread];
    const size_t place = places_[thread]++;
    if (own.empty() || place > 2 * own.size()) return;
    if (place > 0 && place % own.size() == 0) {
      now_ns += of_.rests_ns_[thread];
      note_done(place / own.size() - 1, now_ns);
    }
    if (place == 2 * own.size()) return;
    const size_t id = own[place % own.size()] + place / own.size() * count_;
    due_.push({now_ns + task(id).think_ns, id, What::kHandOver});
  }

  void note_done(size_t round, double now_ns) {
    done_ns_[round] = std::max(done_ns_[round], now_ns);
  }

  bool step() {
    const auto first = std::min_element(
        running_.begin(), running_.end(),
        [](const Running& a, const Running& b) { return lasts_ns(a) < lasts_ns(b); });
    const bool kernel_first =
        first != running_.end() && first->rate > 0 &&
        (due_.empty() || now_ns_ + lasts_ns(*first) <= std::get<0>(due_.top()));
    if (kernel_first) {
      advance(now_ns_ + lasts_ns(*first));
      const size_t id = first->task;
      running_.erase(first);
      share();
      end(id);
      return true;
    }
    if (due_.empty()) return false;
    const auto [at_ns, id, what] = due_.top();
    due_.pop();
    advance(at_ns);
    if (what == What::kEnd) end(id);
    else hand_over(id);
    return true;
  }

  static double lasts_ns(const Running& kernel) {
    return kernel.rate > 0 ? kernel.left_ns / kernel.rate : HUGE_VAL;
  }

  void advance(double to_ns) {
    for (Running& kernel : running_)
      kernel.left_ns = std::max(0.0, kernel.left_ns - kernel.rate * (to_ns - now_ns_));
    now_ns_ = std::max(now_ns_, to_ns);
  }

  void hand_over(size_t id) {
    release(id);
    if (!task(id).holds_host) go_on(of_.thread_[id % count_], now_ns_);
  }

  void release(size_t id) {
    if (--before_[id] != 0) return;
    const Task& one = task(id);
    if (!one.on_sms || one.work_ns <= 0) {
      const double scale = one.is_transfer ? scales_.transfers : 1;
      due_.push({now_ns_ + scale * one.work_ns, id, What::kEnd});
      return;
    }
    running_.push_back({id, one.grid, scales_.kernels * one.work_ns, 0});
    share();
  }

  void end(size_t id) {
    const size_t round = id / count_, own = id % count_;
    note_done(round, now_ns_);
    for (size_t i = of_.first_after_[own]; i < of_.first_after_[own + 1]; ++i)
      release(of_.after_[i] + round * count_);
    if (round == 0 && of_.next_round_[own] != Replay::kLast) release(of_.next_round_[own] + count_);
    if (task(id).holds_host) go_on(of_.thread_[own], now_ns_);
  }

  bool is_crowded() const { return running_.size() > kMostAtOnce; }

  // With too many kernels the replay is abandoned, so shares do not matter.
  void share() {
    if (!is_crowded()) share_sms(&running_, of_.limits_, of_.recorded_sms_, sms_, gamma_);
  }

  const Replay& of_;
  const uint32_t sms_;
  const double gamma_;
  const Scales scales_;
  const size_t count_;
  std::vector<uint32_t> before_;  // how many things each task still waits for
  std::vector<size_t> places_;    // how many tasks each thread has submitted
  std::priority_queue<Due, std::vector<Due>, std::greater<Due>> due_;
  std::vector<Running> running_;
  double now_ns_ = 0;
  double done_ns_[2] = {0, 0};
};

double Replay::length_ns(uint32_t sms, double gamma, const Scales& scales) const {
  return tasks_.empty() ? 0 : Run(*this, sms, gamma, scales).length_ns();
}

}  // namespace tandem::dag::analysis
