#include "daemon/poller.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>

namespace tandem::daemon {
namespace {

constexpr uint32_t kQuietRounds = 16;  // this many in a row before the period grows
constexpr uint32_t kMaxDoublings = 16;
// After a round that took c, the thread rests at least 4c if a doorbell rings, 19c otherwise.
constexpr uint64_t kRestAfterDoorbell = 4;
constexpr uint64_t kRest = 19;

// Signals belong to the core: an application's handlers must never run on these threads.
template <typename Body>
std::thread start_thread(const char* name, Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(body);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace

bool Poller::add(std::shared_ptr<const Pages> pages, int64_t group, int gpu) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t now_ns = started() ? monotonic_ns() : watcher_.last_round_ns();
  if (now_ns != 0) pages->stamp(now_ns);
  const bool added = watcher_.add(std::move(pages), group, gpu);
  nudge();
  return added;
}

std::optional<Snapshot> Poller::remove(uint64_t process_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto removed = watcher_.remove(process_id);
  nudge();
  return removed;
}

bool Poller::regroup(uint64_t process_id, int64_t group) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return watcher_.regroup(process_id, group);
}

bool Poller::weigh(uint64_t process_id, uint32_t sms, uint32_t most_sms) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return watcher_.weigh(process_id, sms, most_sms);
}

void Poller::start() {
  if (started()) return;
  stopping_.store(false, std::memory_order_relaxed);
  const uint64_t now_ns = monotonic_ns();
  core_seen_ns_.store(now_ns, std::memory_order_relaxed);
  watcher_.stamp(now_ns);  // no lock needed: the threads have not started
  poll_thread_ = start_thread("tandem-poll", [this] { run_polls(); });
  heartbeat_thread_ = start_thread("tandem-beat", [this] { run_heartbeat(); });
}

void Poller::stop() {
  if (!started()) return;
  stopping_.store(true, std::memory_order_relaxed);
  nudge();
  poll_thread_.join();
  heartbeat_thread_.join();
}

bool Poller::poll(uint64_t now_ns) {
  const std::lock_guard<std::mutex> lock(mutex_);
  watcher_.stamp(now_ns);
  const bool changed = watcher_.round(now_ns);
  if (changed) wake();
  count_quiet();
  return changed;
}

uint64_t Poller::pause_ns() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return period(idle_period_ns_);
}

Wake Poller::wait_until(uint64_t deadline_ns) {
  core_waits_.store(true, std::memory_order_relaxed);
  const uint32_t seen = seen_.load(std::memory_order_relaxed);
  const FutexWaiter waiter{&events_, seen};
  Wake wake = Wake::kChanged;
  if (events_.load(std::memory_order_acquire) == seen) {
    wake = futex_wait_any(&waiter, 1, deadline_ns);
  }
  const uint32_t events = events_.load(std::memory_order_acquire);
  if (events != seen) wake = Wake::kChanged;
  else if (wake == Wake::kChanged) wake = Wake::kInterrupted;  // woken for nothing: look again
  seen_.store(events, std::memory_order_relaxed);
  core_seen_ns_.store(monotonic_ns(), std::memory_order_relaxed);
  core_waits_.store(false, std::memory_order_relaxed);
  return wake;
}

void Poller::wake() {
  events_.fetch_add(1, std::memory_order_release);
  futex_wake_all(&events_);
}

void Poller::nudge() {
  nudges_.fetch_add(1, std::memory_order_release);
  futex_wake_all(&nudges_);
}

std::vector<Snapshot> Poller::snapshots() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return watcher_.snapshots();
}

std::vector<MemoryClaim> Poller::memory_claims() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return watcher_.memory_claims();
}

std::vector<Snapshot> Poller::changed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return watcher_.changed();
}

std::vector<RecordBuffer::Run> Poller::take_records(size_t limit, uint32_t kinds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return watcher_.take_records(limit, kinds);
}

bool Poller::want_window(uint64_t process_id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return watcher_.want_window(process_id);
}

std::shared_ptr<const Window> Poller::window(uint64_t process_id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return watcher_.window(process_id);
}

uint64_t Poller::now_ns() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return started() ? monotonic_ns() : watcher_.last_round_ns();
}

bool Poller::watches(uint64_t process_id) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return watcher_.watches(process_id);
}

std::optional<uint32_t> Poller::begin_sample(uint64_t process_id, const SampleLimits& limits) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return watcher_.begin_sample(process_id, limits);
}

std::optional<Sample> Poller::take_sample(uint64_t process_id, uint32_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return watcher_.take_sample(process_id, number);
}

std::optional<Requests> Poller::take_requests(uint64_t process_id, uint64_t idle_ns,
                                              uint64_t limit_ns) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return watcher_.take_requests(process_id, idle_ns, limit_ns);
}

// Returns the time that the round took.
uint64_t Poller::round(std::vector<FutexWaiter>* waiters,
                       std::vector<std::shared_ptr<const Pages>>* held) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t begin_ns = monotonic_ns();
  if (watcher_.round(begin_ns)) wake();
  count_quiet();
  if (hears_doorbells_) watcher_.doorbells(waiters, held);
  return monotonic_ns() - begin_ns;
}

void Poller::count_quiet() {
  quiet_rounds_ = watcher_.active() ? 0 : std::min(quiet_rounds_ + 1, kQuietRounds + kMaxDoublings);
}

uint64_t Poller::period(uint64_t longest_ns) const {
  if (quiet_rounds_ < kQuietRounds) return period_ns_;
  const uint32_t doublings = std::min(quiet_rounds_ - kQuietRounds + 1, kMaxDoublings);
  return std::clamp(period_ns_ << doublings, period_ns_, longest_ns);
}

uint64_t Poller::next_period(uint64_t cost_ns) {
  const uint64_t longest_ns = std::max(
      period_ns_, hears_doorbells_ ? idle_period_ns_ : std::min(idle_period_ns_, kDeafPeriodNs));
  if (quiet_rounds_ < kQuietRounds) return std::clamp(kRest * cost_ns, period_ns_, longest_ns);
  return period(longest_ns);
}

void Poller::run_polls() {
  std::vector<FutexWaiter> waiters;
  std::vector<std::shared_ptr<const Pages>> held;  // keeps the doorbells waited on mapped
  while (!stopping_.load(std::memory_order_relaxed)) {
    waiters.assign(1, {&nudges_, nudges_.load(std::memory_order_acquire)});
    held.clear();
    const uint64_t cost_ns = round(&waiters, &held);
    const uint64_t now_ns = monotonic_ns();
    const uint64_t rested_ns = now_ns + std::max(period_ns_, kRestAfterDoorbell * cost_ns);
    const uint64_t next_ns = now_ns + next_period(cost_ns);
    // Only a long sleep listens for doorbells: jobs ring at every wait, and may ring without end.
    if (next_ns > rested_ns) futex_wait_any(waiters.data(), waiters.size(), next_ns);
    if (monotonic_ns() < rested_ns) futex_wait_any(waiters.data(), 1, rested_ns);
  }
}

void Poller::run_heartbeat() {
  while (!stopping_.load(std::memory_order_relaxed)) {
    const uint64_t now_ns = monotonic_ns();
    if (core_is_alive(core_waits_.load(std::memory_order_relaxed),
                      core_seen_ns_.load(std::memory_order_relaxed), now_ns)) {
      const std::lock_guard<std::mutex> lock(mutex_);
      watcher_.stamp(now_ns);
    }
    // Nudges are meant for the poll thread, but a stop must not wait for the next beat either.
    const FutexWaiter nudge{&nudges_, nudges_.load(std::memory_order_acquire)};
    if (!stopping_.load(std::memory_order_relaxed)) {
      futex_wait_any(&nudge, 1, now_ns + kHeartbeatNs);
    }
  }
}

}  // namespace tandem::daemon
