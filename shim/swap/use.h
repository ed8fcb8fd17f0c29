// Threads that touch swappable device memory, or change what there is of it, announce it for that
// time. From when memory begins to move until all of it is back nobody gets in: device work would
// find pages missing, and new memory would be taken from the job that runs instead. When the
// process ends, threads that free memory get in between two moves: what is freed need not come
// back.
#pragma once

#include <atomic>

#include <cstdint>
#include "always_inline.h"

namespace tandem::shim::swap {

// Some memory of this process can be moved. Set for good before the first of it is handed out; a
// thread that was inside a call by then cannot know of that memory. Relaxed: one load per launch.
extern std::atomic<bool> g_on;

enum class Needs : uint8_t {
  kPages,   // touches memory, or allocates some
  kTables,  // frees memory
};

// Calls nest on a thread: only the outermost waits.
void enter(Needs needs);
void leave(Needs needs);

// Waits while memory is away. True: it was.
bool wait_at_door();
inline bool wait_until_open() {
  return __builtin_expect(g_on.load(std::memory_order_relaxed), 0) && wait_at_door();
}

class Use {
 public:
  // Not `needed`: the call concerns no such memory, and this does nothing.
  ALWAYS_INLINE explicit Use(bool needed = true, Needs needs = Needs::kPages)
      : counted_(needed && g_on.load(std::memory_order_relaxed)), needs_(needs) {
    if (__builtin_expect(counted_, 0)) enter(needs_);
  }
  explicit Use(Needs needs) : Use(true, needs) {}
  ALWAYS_INLINE ~Use() {
    if (__builtin_expect(counted_, 0)) leave(needs_);
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  bool counted_;
  Needs needs_;
};

// For the mover. After shut, nobody new gets in. Those inside leave in their own time: is_empty
// tells when.
void shut();
void open();
// Shut, but the mover is not using the tables for now.
void set_ajar();
[[nodiscard]] bool is_shut();
[[nodiscard]] bool is_ajar();
[[nodiscard]] bool is_empty();

// The process ends: memory comes back only for threads that wait for it, here or at the gate.
void begin_end();
[[nodiscard]] bool is_ending();
[[nodiscard]] bool is_wanted();
void forget_users();  // a forked child has none

}  // namespace tandem::shim::swap
