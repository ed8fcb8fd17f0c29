// The daemon's two native threads around a Watcher, and the wait of its core.
//
//   poll thread       runs a round every period. Once nothing was busy or waiting for a while,
//                     the period grows up to the idle period; a doorbell ends such a longer
//                     sleep at once. Takes at most a twentieth of a core, a fifth with doorbells
//   heartbeat thread  stamps every command page each 100 ms while the core waits or left its wait
//                     less than a second ago. So a core that hangs ends the heartbeat, and
//                     its jobs run ungated; a core that waits for long does not
//
// With a virtual clock neither thread runs: the owner calls poll(), which also stamps.
//
// All methods are thread-safe, except that only one thread at a time may call wait_until(), and
// only the owner start() and stop(). `mutex_` guards the watcher; nobody waits while holding it.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "daemon/watcher.h"

namespace tandem::daemon {

// True if the heartbeat may go on. `core_seen_ns` is when the core last left its wait.
constexpr bool core_is_alive(bool core_waits, uint64_t core_seen_ns, uint64_t now_ns) {
  constexpr uint64_t kGraceNs = 1'000'000'000;
  return core_waits || now_ns < core_seen_ns + kGraceNs;
}

class Poller {
 public:
  static constexpr uint64_t kPeriodNs = 1'000'000;
  static constexpr uint64_t kIdlePeriodNs = 100'000'000;
  static constexpr uint64_t kDeafPeriodNs = 10'000'000;  // at most, if doorbells cannot be heard
  static constexpr uint64_t kHeartbeatNs = 100'000'000;

  Poller(uint64_t period_ns, uint64_t idle_period_ns, bool detects = true)
      : period_ns_(period_ns), idle_period_ns_(idle_period_ns), watcher_(detects) {}
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;
  ~Poller() { stop(); }

  // A process is stamped when it is added, and all are stamped when the threads start: no heartbeat
  // begins stale.
  bool add(std::shared_ptr<const Pages> pages, int64_t group, int gpu);
  std::optional<Snapshot> remove(uint64_t process_id);  // takes a last look
  bool regroup(uint64_t process_id, int64_t group);     // who is charged for its time from now on
  bool weigh(uint64_t process_id, uint32_t sms, uint32_t most_sms);  // as Watcher's

  void start();
  void stop();
  bool started() const { return poll_thread_.joinable(); }

  bool poll(uint64_t now_ns);  // not while started
  uint64_t pause_ns() const;   // how long the owner may wait before the next poll: longer when idle

  // kChanged: a notable change or a wake() since the last wait that returned kChanged.
  // kInterrupted: a signal.
  Wake wait_until(uint64_t deadline_ns);
  void wake();

  std::vector<Snapshot> snapshots() const;
  std::vector<MemoryClaim> memory_claims() const;
  std::vector<Snapshot> changed();
  std::vector<RecordBuffer::Run> take_records(size_t limit,
                                              uint32_t kinds = RecordBuffer::kAllKinds);
  bool want_window(uint64_t process_id);
  std::shared_ptr<const Window> window(uint64_t process_id) const;
  std::optional<Requests> take_requests(uint64_t process_id, uint64_t idle_ns, uint64_t limit_ns);

  // As in Watcher; limits.until_ns is on the clock of the rounds.
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

  // Counts notable changes and wakes; `seen_` is the count that the waiter was last told. Release
  // by whoever counts, acquire in wait_until.
  std::atomic<uint32_t> events_{0};
  std::atomic<uint32_t> seen_{0};

  std::atomic<bool> core_waits_{false};
  std::atomic<uint64_t> core_seen_ns_{0};  // when the core last left its wait; relaxed

  std::atomic<bool> stopping_{false};  // set before a nudge; checked after each wait
  std::atomic<uint32_t> nudges_{0};    // release in nudge, acquire before a round
  uint32_t quiet_rounds_ = 0;          // in a row
  std::thread poll_thread_;
  std::thread heartbeat_thread_;
};

}  // namespace tandem::daemon
