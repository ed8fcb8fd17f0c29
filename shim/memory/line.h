// The line for device memory: an allocation that its limit or the driver refuses waits here, and
// tries again when the daemon says that it may. Only in jobs that asked for it (`--wait-memory`).
//
// Rules
// 1. The thread waits in its own call, before the driver is asked, and holds none of the shim's
//    locks.
// 2. Every wait ends: the memory is there, the daemon says that it never can be, the job's patience
//    runs out, or nobody is left to say anything (the daemon is gone, or its tick is stale). In the
//    last two cases the driver is asked once more; then the program is told OUT_OF_MEMORY.
// 3. Nobody waits while a stream of the process captures.
// 4. The threads of a process stand in line one behind the other; the daemon is told of the first.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "memory.h"
#include "session.h"
#include "thread_state.h"

namespace tandem::shim::line {

extern std::atomic<uint32_t> g_waiting;  // threads of this process that wait; relaxed, a hint

// Others are waiting: a thread that may wait must do so before it asks the driver.
inline bool is_ahead() {
  const Channel* channel = g_channel.load(std::memory_order_acquire);
  if (!channel) return false;
  const uint32_t line = channel->command->memory.line.load(std::memory_order_relaxed);
  return __builtin_expect(
      (line & shm::kLineAhead) != 0 || g_waiting.load(std::memory_order_relaxed) != 0, 0);
}

// A job that shares room for its iterations or phases takes no memory outside its own.
inline bool is_held() {
  const Channel* channel = g_channel.load(std::memory_order_acquire);
  if (!channel) return false;
  const uint32_t lane = channel->command->memory.lane.load(std::memory_order_relaxed);
  const uint64_t limit = channel->command->gate.mark_limit.load(std::memory_order_relaxed);
  return __builtin_expect((lane & shm::kLaneHolds) || limit, 0);
}
void wait_at_gate();

// Whether this thread may wait at all right now.
bool may_wait();

struct Want {
  uint32_t device = 0;
  uint64_t bytes = 0;      // what the device has to provide; 0: it has already done so
  bool is_limited = true;  // whether they count against the limit
};

// One thread's place in line, from its first refusal, or from the start of its call, to the call's
// end.
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
  uint64_t retry_ns_ = 0;  // when to try again without being told to
  uint32_t trying_ = 0;    // the round in which it was last allowed to try; 0 = none
  bool was_let_go_ = false;
  bool is_last_ = false;
  bool is_not_to_wait_ = false;  // the line refused it before anything else was asked
};

// Runs `attempt`, which returns CUDA_ERROR_OUT_OF_MEMORY where the limit or the driver refuses, as
// often as the line for memory says. `ask` returns what the thread would wait for; it is called
// only when there is a need to wait.
template <class Ask, class Attempt>
CUresult in_line(Ask ask, Attempt attempt) {
  if (is_held()) wait_at_gate();
  Want want;
  g_thread.refused_by = shm::Refusal::kLine;  // where others are ahead, nothing else is asked
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

// This thread's current attempt is refused by its limit; the device was not asked.
inline void note_refused_by_quota() { g_thread.refused_by = shm::Refusal::kQuota; }

// Counts the calling thread among those that use the device, until it ends.
void count_thread();
void uncount_thread();
void never_count_thread();  // for the shim's own threads

void start_afresh();  // a forked child waits for nothing

}  // namespace tandem::shim::line
