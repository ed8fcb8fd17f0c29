// The line for device memory: an allocation that its limit or the driver refuses waits, and tries
// again when the daemon says that it may. Only in jobs that asked for it (`--wait-memory`).
//
// Rules
// 1. The thread waits in its own call, before the driver is asked, and holds no lock of ours.
// 2. Every wait has an end: the memory is there, the daemon says that it can never be, the job's
//    patience is over, or nobody is there to say anything (the daemon is gone, or its tick stale). In
//    the last two cases the driver is asked once more; then the program is told OUT_OF_MEMORY.
// 3. Nobody waits while a stream of the process captures.
// 4. A process's threads stand in line one behind the other; the daemon is told of the first.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "memory.h"
#include "session.h"
#include "thread_state.h"

namespace tandem::shim::line {

extern std::atomic<uint32_t> g_waiting;  // threads of this process; relaxed, a hint

// Others wait: whoever may wait has to, before the driver is asked.
inline bool is_ahead() {
  const Channel* channel = g_channel.load(std::memory_order_acquire);
  if (!channel) return false;
  const uint32_t line = channel->command->memory.line.load(std::memory_order_relaxed);
  return __builtin_expect(
      (line & shm::kLineAhead) != 0 || g_waiting.load(std::memory_order_relaxed) != 0, 0);
}

// Who shares room for iterations or phases takes none outside its own.
inline bool is_held() {
  const Channel* channel = g_channel.load(std::memory_order_acquire);
  if (!channel) return false;
  const uint32_t lane = channel->command->memory.lane.load(std::memory_order_relaxed);
  const uint64_t limit = channel->command->gate.mark_limit.load(std::memory_order_relaxed);
  return __builtin_expect((lane & shm::kLaneHolds) || limit, 0);
}
void wait_at_gate();

// Whether this thread may wait at all, now.
bool may_wait();

struct Want {
  uint32_t device = 0;
  uint64_t bytes = 0;  // that the device has to give; 0: it has given them already
  bool is_limited = true;  // they count against the limit
};

// One thread's place in line, from its first refusal, or from the start, to the end of its call.
class Place {
 public:
  explicit Place(const Want& want);
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  // Blocks until it is time to try (again). False: the program is told OUT_OF_MEMORY.
  bool wait();

 private:
  bool try_last();
  void pause(uint32_t round, bool again);
  [[nodiscard]] bool is_first() const;
  [[nodiscard]] bool is_over() const;

  Channel* channel_;
  uint64_t ticket_ = 0;  // 0: no place was free
  uint64_t until_ns_ = 0;
  uint64_t retry_ns_ = 0;       // when to try again unasked
  uint32_t trying_ = 0;         // the round of the try that was let go last; 0 = none
  bool was_let_go_ = false;
  bool is_last_ = false;
  bool is_not_to_wait_ = false;  // the line refused it before anybody else was asked
};

// Runs `attempt`, which says CUDA_ERROR_OUT_OF_MEMORY where the limit or the driver refuses, as often
// as the line for memory says. `ask` tells, only when there is a need to wait, for what.
template <class Ask, class Attempt>
CUresult in_line(Ask ask, Attempt attempt) {
  if (is_held()) wait_at_gate();
  Want want;
  g_thread.refused_by = shm::Refusal::kLine;  // where others are ahead, nobody else is asked
  if (is_ahead() && may_wait()) want = ask();
  if (!want.bytes) {
    g_thread.refused_by = shm::Refusal::kDevice;  // unless the limit says no
    const CUresult result = attempt();
    if (__builtin_expect(result != CUDA_ERROR_OUT_OF_MEMORY, 1)) return result;
    if (!may_wait()) {
      memory::count_refused(g_thread.refused_by);
      return result;
    }
    want = ask();
  }
  Place place(want);
  while (place.wait()) {
    const CUresult result = attempt();
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// The attempt that this thread makes is refused by its limit; the device was not asked.
inline void note_refused_by_quota() { g_thread.refused_by = shm::Refusal::kQuota; }

// A thread that uses the device; it counts until it ends.
void count_thread();
void uncount_thread();
void never_count_thread();  // our own

void start_afresh();  // a forked child waits for nothing

}  // namespace tandem::shim::line
