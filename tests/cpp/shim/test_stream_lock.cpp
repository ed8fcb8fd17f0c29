#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include "bias.h"
#include "check.h"
#include "heavy_barrier.h"
#include "refusing.h"
#include "stream_lock.h"
#include "streams.h"
#include "wait.h"

using namespace tandem;
using namespace tandem::shim;
using namespace tandem::shim::partition;

namespace {

constexpr int kUntilBiased = 1000;  // more than enough

// Starts with no lock biased and biases not allowed; nothing else uses the locks.
void begin() {
  forget_owners();
  g_on = true;
}

// Allows biases, unless the kernel refuses what they need, as in some containers.
bool begin_biased() {
  begin();
  allow_biases();
  if (!are_biases_allowed()) std::puts("  not tried: membarrier(2) is refused");
  return are_biases_allowed();
}

void take(StreamLock& lock, int times) {
  for (int i = 0; i < times; ++i) lock.lock(), lock.unlock();
}

void take_at_once(StreamLock& lock) {
  CHECK(lock.try_lock());
  lock.unlock();
}

void in_thread(void (*body)(StreamLock&), StreamLock& lock) {
  std::thread([&] { body(lock); }).join();
}

// What a lock protects: two numbers that are equal unless a thread is changing them. They are
// volatile so that they are stored one by one.
struct Pair {
  volatile uint64_t first = 0, second = 0;
  bool add() {
    const bool was_alone = first == second;
    first = first + 1;
    second = second + 1;
    return was_alone;
  }
};

// From now on this thread may not ask for barriers.
bool refuse_barriers() { return refuse_call(SYS_membarrier, EPERM); }

}  // namespace

TEST(a_lock_that_one_thread_takes_for_a_while_is_biased_to_it_until_another_takes_it) {
  if (!begin_biased()) return;
  StreamLock lock;
  take(lock, 1);
  CHECK(!lock.is_biased());
  take(lock, kUntilBiased);
  CHECK(lock.is_biased());
  in_thread([](StreamLock& taken) { take(taken, 1); }, lock);
  CHECK(!lock.is_biased());
  take(lock, kUntilBiased);
  CHECK(lock.is_biased());
}

TEST(a_lock_that_threads_take_in_turn_is_biased_to_none) {
  if (!begin_biased()) return;
  StreamLock lock;
  for (int i = 0; i < kUntilBiased / 100; ++i) {
    take(lock, 100);
    in_thread([](StreamLock& taken) { take(taken, 100); }, lock);
    CHECK(!lock.is_biased());
  }
}

TEST(before_the_helper_has_asked_the_kernel_no_lock_is_biased) {
  begin();
  StreamLock lock;
  take(lock, kUntilBiased);
  CHECK(!lock.is_biased());
}

// Before the owner says that it is inside, it stores to distant memory, so what it says becomes
// visible late. Without the barrier in StreamLock::revoke this fails on two processors.
TEST(whoever_has_the_lock_is_alone_while_its_bias_is_given_and_taken_away) {
  constexpr uint64_t kRevocations = 2000;
  constexpr size_t kFar = size_t{1} << 24, kStride = 4096 + 64;
  if (!begin_biased()) return;
  StreamLock lock;
  Pair pair;
  std::vector<char> far(kFar);
  std::atomic<bool> stop{false};
  bool was_alone = true;  // as seen by the lock's holder
  uint64_t taken = 0, taken_here = 0;
  std::thread owner([&] {
    for (; !stop; ++taken) {
      const_cast<volatile char&>(far[taken * kStride % kFar]) = 1;
      lock.lock();
      was_alone &= pair.add();
      lock.unlock();
    }
  });
  for (uint64_t i = 0; i < kRevocations; ++i) {
    for (int spins = 0; !lock.is_biased();)
      ++spins % 1000 ? cpu_pause() : std::this_thread::yield();
    if (i % 2 == 0) lock.lock();
    else if (!lock.try_lock()) continue;
    was_alone &= pair.add();
    ++taken_here;
    lock.unlock();
  }
  stop = true;
  owner.join();
  CHECK(was_alone);
  CHECK_EQ(pair.first, taken + taken_here);
}

TEST(who_tries_while_the_owner_is_inside_leaves_the_bias_alone_and_never_waits) {
  if (!begin_biased()) return;
  StreamLock lock;
  take(lock, kUntilBiased);
  lock.lock();
  CHECK(!lock.try_lock());
  in_thread([](StreamLock& tried) { CHECK(!tried.try_lock()); }, lock);
  CHECK(lock.is_biased());
  lock.unlock();
  in_thread(take_at_once, lock);
}

TEST(a_thread_may_have_two_locks_that_are_biased_to_it) {
  if (!begin_biased()) return;
  StreamLock outer, inner;
  take(outer, kUntilBiased), take(inner, kUntilBiased);
  outer.lock(), inner.lock();
  in_thread([](StreamLock& tried) { CHECK(!tried.try_lock()); }, outer);
  in_thread([](StreamLock& tried) { CHECK(!tried.try_lock()); }, inner);
  inner.unlock(), outer.unlock();
  in_thread(take_at_once, outer);
  in_thread(take_at_once, inner);
}

TEST(nobody_waits_for_an_owner_that_has_ended_and_its_place_is_another_threads) {
  constexpr int kMoreThanPlaces = 100;
  if (!begin_biased()) return;
  for (int i = 0; i < kMoreThanPlaces; ++i) {
    StreamLock lock;
    in_thread([](StreamLock& taken) { take(taken, kUntilBiased); }, lock);
    CHECK(lock.is_biased());
    take(lock, 1);
    CHECK(!lock.is_biased());
  }
}

TEST(threads_beyond_the_places_take_locks_without_a_bias) {
  constexpr int kThreads = 70, kPlaces = 64;
  if (!begin_biased()) return;
  std::vector<std::unique_ptr<StreamLock>> locks;
  std::vector<std::thread> threads;
  std::atomic<int> ready{0}, biased{0};
  std::atomic<bool> stop{false};
  for (int i = 0; i < kThreads; ++i) locks.push_back(std::make_unique<StreamLock>());
  for (const auto& lock : locks) {
    threads.emplace_back([&] {
      take(*lock, kUntilBiased);
      biased += lock->is_biased();
      ++ready;
      while (!stop) std::this_thread::yield();
      take(*lock, 1);
    });
  }
  while (ready != kThreads) std::this_thread::yield();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(biased.load(), kPlaces);
}

TEST(a_process_that_may_not_ask_for_barriers_has_no_biases) {
  begin();
  std::thread([] {
    CHECK(refuse_barriers());
    allow_biases();
  }).join();
  StreamLock lock;
  take(lock, kUntilBiased);
  CHECK(!lock.is_biased());
}

TEST(barriers_that_are_refused_later_end_all_biases_and_keep_the_locks) {
  if (!begin_biased()) return;
  StreamLock lock, other;
  take(lock, kUntilBiased), take(other, kUntilBiased);
  std::thread([&] {
    CHECK(refuse_barriers());
    errno = 7;
    CHECK(!heavy_barrier());
    CHECK_EQ(errno, 7);
    take(lock, 1);
  }).join();
  CHECK(!lock.is_biased());
  take(lock, kUntilBiased);
  CHECK(!lock.is_biased());
  CHECK(other.is_biased());  // nobody has tried to take it
  std::thread([&] { take(other, 1); }).join();
  CHECK(!other.is_biased());
}

TEST(a_forked_child_has_no_owners_and_may_have_its_own) {
  if (!begin_biased()) return;
  StreamLock lock;
  std::atomic<bool> is_inside{false}, stop{false};
  std::thread owner([&] {
    take(lock, kUntilBiased);
    lock.lock();
    is_inside = true;
    while (!stop) std::this_thread::yield();
    lock.unlock();
  });
  while (!is_inside) std::this_thread::yield();
  const pid_t child = fork();
  if (child == 0) {
    lock.start_afresh();
    const bool may_bias = begin_biased();
    take(lock, kUntilBiased);
    _exit(may_bias && lock.is_biased() && heavy_barrier() ? 0 : 1);
  }
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  CHECK(lock.is_biased());  // in the parent
  stop = true;
  owner.join();
}
