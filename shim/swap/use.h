// Whoever touches device memory that can be moved, or changes what there is of it, says so meanwhile.
// From when memory begins to move until all of it is back nobody gets in: device work would find pages
// missing, and new memory would be taken from the job that runs instead.
#pragma once

#include <atomic>

namespace tandem::shim::swap {

// Some memory of this process can be moved. Set before the first of it is handed out, for good; whoever
// was inside a call by then cannot know of that memory. Relaxed: one load a launch.
extern std::atomic<bool> g_on;

// Calls nest on a thread: only the outermost waits.
void enter();
void leave();

// Waits while memory is away. True: it was.
bool wait_at_door();
inline bool wait_until_open() {
  return __builtin_expect(g_on.load(std::memory_order_relaxed), 0) && wait_at_door();
}

class Use {
 public:
  // Not `needed`: of no such memory, and does nothing.
  explicit Use(bool needed = true) : counted_(needed && g_on.load(std::memory_order_relaxed)) {
    if (__builtin_expect(counted_, 0)) enter();
  }
  ~Use() {
    if (__builtin_expect(counted_, 0)) leave();
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  bool counted_;
};

// The mover's side. shut: nobody new gets in. Those inside leave in their own time: is_empty says when.
void shut();
void open();
[[nodiscard]] bool is_shut();
[[nodiscard]] bool is_empty();

// The process ends: nobody waits any more.
void stop_waiting();
void forget_users();  // a forked child has none

}  // namespace tandem::shim::swap
