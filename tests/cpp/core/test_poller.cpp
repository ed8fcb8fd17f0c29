#include "daemon/poller.h"

#include <cerrno>
#include <random>
#include <thread>

#include "check.h"
#include "fake_shim.h"
#include "refusing.h"

using namespace tandem::daemon;
namespace shm = tandem::shm;

namespace {

constexpr uint64_t kMinuteNs = 60'000'000'000;  // only a deadline, never reached

uint64_t soon() { return monotonic_ns() + kMinuteNs; }

// Waits until the core sees a snapshot for which `wanted` is true.
template <typename Wanted>
void wait_for(Poller& poller, Wanted wanted) {
  const uint64_t deadline_ns = soon();
  while (!wanted(poller.snapshots().front())) {
    CHECK(poller.wait_until(deadline_ns) != Wake::kTimeout);
  }
}

}  // namespace

TEST(a_virtual_clock_polls_by_hand_and_stamps) {
  const auto channel = make_channel();
  FakeShim job(*channel);
  Poller poller(1'000'000, 50'000'000);
  CHECK(poller.add(channel->pages(), 1, 0));

  CHECK(!poller.poll(100));
  job.set_slot(0, 1, 0);
  CHECK(poller.poll(200));

  CHECK_EQ(channel->pages()->command().heartbeat.tick_ns.load(), 200u);
  CHECK(poller.wait_until(soon()) == Wake::kChanged);
  CHECK(poller.wait_until(0) == Wake::kTimeout);
}

TEST(changes_between_two_waits_are_told_once) {
  Poller poller(1'000'000, 50'000'000);
  poller.wake();
  poller.wake();
  CHECK(poller.wait_until(soon()) == Wake::kChanged);
  CHECK(poller.wait_until(0) == Wake::kTimeout);
}

TEST(wake_from_another_thread_ends_a_wait) {
  Poller poller(1'000'000, 50'000'000);
  std::thread other([&] { poller.wake(); });
  CHECK(poller.wait_until(soon()) == Wake::kChanged);
  other.join();
}

TEST(the_poll_thread_tells_the_core_of_changes) {
  const auto channel = make_channel();
  FakeShim job(*channel);
  Poller poller(1'000'000, 2'000'000);
  poller.add(channel->pages(), 1, 0);
  poller.start();

  job.set_slot(0, 1, 0);
  wait_for(poller, [](const Snapshot& s) { return s.busy; });
  job.slot(0).done.store(1);
  wait_for(poller, [](const Snapshot& s) { return !s.busy && s.exclusive_ns > 0; });
  poller.stop();
  poller.stop();
}

TEST(a_doorbell_ends_an_idle_period_that_never_would) {
  const auto channel = make_channel();
  FakeShim job(*channel);
  Poller poller(1'000'000, kMinuteNs);
  poller.add(channel->pages(), 1, 0);
  poller.start();

  // The period doubles up to a minute, so only the doorbell causes the later rounds.
  std::atomic<uint32_t>& doorbell = job.state().control.doorbell;
  for (uint32_t ring = 1; ring <= 60; ++ring) {
    job.state().marks.steps.store(ring);
    doorbell.fetch_add(1, std::memory_order_release);
    futex_wake_all(&doorbell);
    wait_for(poller, [&](const Snapshot& s) { return s.steps == ring; });
  }
  poller.stop();
}

TEST(without_that_system_call_it_looks_more_often) {
  std::thread([] {
    constexpr uint32_t kFutexWaitv = 449;
    if (can_wait_for_several()) CHECK(refuse_call(kFutexWaitv, ENOSYS));
    CHECK(!can_wait_for_several());
    const auto channel = make_channel();
    FakeShim job(*channel);
    Poller poller(1'000'000, kMinuteNs);
    poller.add(channel->pages(), 1, 0);
    poller.start();

    for (uint32_t look = 1; look <= 40; ++look) {  // enough for the longest period
      job.state().marks.steps.store(look);
      wait_for(poller, [&](const Snapshot& s) { return s.steps == look; });
    }
  }).join();
}

TEST(the_heartbeat_goes_on_while_the_core_waits) {
  const auto channel = make_channel();
  Poller poller(1'000'000, 50'000'000);
  poller.start();
  poller.add(channel->pages(), 1, 0);
  const std::atomic<uint64_t>& tick_ns = channel->pages()->command().heartbeat.tick_ns;
  const uint64_t first_ns = tick_ns.load();
  CHECK(first_ns != 0);  // stamped when it was added

  std::thread core([&] { CHECK(poller.wait_until(soon()) == Wake::kChanged); });
  const uint64_t deadline_ns = soon();
  while (tick_ns.load() < first_ns + 2 * Poller::kHeartbeatNs) {
    std::this_thread::yield();
    CHECK(monotonic_ns() < deadline_ns);
  }
  poller.wake();
  core.join();
}

TEST(a_core_that_does_not_come_back_is_hung) {
  CHECK(core_is_alive(true, 0, 999'000'000'000));
  CHECK(core_is_alive(false, 5, 1'000'000'004));
  CHECK(!core_is_alive(false, 5, 1'000'000'005));
}

TEST(adding_and_removing_while_the_threads_run_is_safe) {
  Poller poller(100'000, 200'000);
  poller.start();
  std::mt19937 random(5);
  std::vector<std::unique_ptr<Channel>> channels;
  for (uint64_t id = 1; id <= 150; ++id) {  // more doorbells than one wait can hold
    channels.push_back(make_channel(id));
    CHECK(poller.add(channels.back()->pages(), static_cast<int64_t>(id), 0));
    if (random() % 4 == 0) poller.take_records(100);
  }
  CHECK_EQ(poller.snapshots().size(), 150u);
  for (uint64_t id = 1; id <= 150; ++id) {
    channels[id - 1].reset();  // closed before its removal
    CHECK(poller.remove(id));
  }
  CHECK_EQ(poller.snapshots().size(), 0u);
}
