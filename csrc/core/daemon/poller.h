// The daemon's two native threads around a Watcher, and the wait of its core.
//
//   poll thread       a round every period; ever rarer, down to the idle period, once nothing
//                     was busy or waiting for a while. A doorbell ends such a longer sleep at
//                     once. Takes at most a twentieth of a core, with doorbells a fifth
//   heartbeat thread  stamps every command page each 100 ms, while the core is in wait() or came
//                     out of it less than a second ago. A hung core so ends the heartbeat, and
//                     its jobs go on ungated; a core that waits for long does not
//
// With a virtual clock neither runs: the owner calls poll() and that stamps.
//
// Everything may be called from any thread; wait() by one at a time, start() and stop() by the
// owner. `mutex_` guards the watcher, and nothing is waited for under it.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "daemon/watcher.h"

namespace tandem::daemon {

// May the heartbeat go on? `core_seen_ns` is when the core last came out of its wait.
constexpr bool core_is_alive(bool core_waits, uint64_t core_seen_ns, uint64_t now_ns) {
  constexpr uint64_t kGraceNs = 1'000'000'000;
  return core_waits || now_ns < core_seen_ns + kGraceNs;
}

class Poller {
 public:
  static constexpr uint64_t kPeriodNs = 1'000'000;
  static constexpr uint64_t kIdlePeriodNs = 100'000'000;
  static constexpr uint64_t kDeafPeriodNs = 10'000'000;  // at most, where doorbells are not heard
  static constexpr uint64_t kHeartbeatNs = 100'000'000;

  Poller(uint64_t period_ns, uint64_t idle_period_ns, bool detects = true)
      : period_ns_(period_ns), idle_period_ns_(idle_period_ns), watcher_(detects) {}
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;
  ~Poller() { stop(); }

  // A process is stamped when it is added, and all are when the threads start: no heartbeat begins
  // stale.
  bool add(std::shared_ptr<const Pages> pages, int64_t group, int gpu);
  std::optional<Snapshot> remove(uint64_t process_id);  // a last look at it
  bool regroup(uint64_t process_id, int64_t group);  // whom its time is charged to from now on
  bool weigh(uint64_t process_id, uint32_t sms, uint32_t most_sms);  // as Watcher's

  void start();
  void stop();
  bool started() const { return poll_thread_.joinable(); }

  bool poll(uint64_t now_ns);  // not while started
  uint64_t pause_ns() const;   // of whoever calls it, until the next: longer where nothing goes on

  // kChanged: a notable change or wake() since the last wait that said so. kInterrupted: a signal.
  Wake wait_until(uint64_t deadline_ns);
  void wake();

  std::vector<Snapshot> snapshots() const;
  std::vector<MemoryClaim> memory_claims() const;
  std::vector<Snapshot> changed();
  std::vector<RecordBuffer::Run> take_records(size_t limit, uint32_t kinds = RecordBuffer::kAllKinds);
  bool want_window(uint64_t process_id);
  std::shared_ptr<const Window> window(uint64_t process_id) const;
  std::optional<Requests> take_requests(uint64_t process_id, uint64_t idle_ns, uint64_t limit_ns);

  // As those of the Watcher; limits.until_ns is of the clock of the rounds.
  bool watches(uint64_t process_id) const;
  std::optional<uint32_t> begin_sample(uint64_t process_id, const SampleLimits& limits);
  std::optional<Sample> take_sample(uint64_t process_id, uint32_t number);
  uint64_t now_ns() const;

 private:
  void run_polls();
  void run_heartbeat();
  uint64_t round(std::vector<FutexWaiter>* waiters,
                 std::vector<std::shared_ptr<const Pages>>* held);
  uint64_t next_period(uint64_t cost_ns);
  void count_quiet();
  uint64_t period(uint64_t longest_ns) const;
  void nudge();  // makes the poll thread look again

  const uint64_t period_ns_;
  const uint64_t idle_period_ns_;
  const bool hears_doorbells_ = can_wait_for_several();

  mutable std::mutex mutex_;
  Watcher watcher_;

  // Counts notable changes and wakes; the waiter remembers in `seen_` which it was told of. Release
  // by whoever counts, acquire in wait_until.
  std::atomic<uint32_t> events_{0};
  std::atomic<uint32_t> seen_{0};

  std::atomic<bool> core_waits_{false};
  std::atomic<uint64_t> core_seen_ns_{0};  // when the core last came out of wait; relaxed

  std::atomic<bool> stopping_{false};     // before a nudge; both threads look after each wait
  std::atomic<uint32_t> nudges_{0};       // release in nudge, acquire before a round
  uint32_t quiet_rounds_ = 0;             // of whoever looks alone
  std::thread poll_thread_;
  std::thread heartbeat_thread_;
};

}  // namespace tandem::daemon
