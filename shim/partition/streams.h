// The streams of a job that go where the daemon tells the process to. The job keeps its handle; behind it
// is one stream of the driver's for each set of SMs that it has been in, and the handle's own for the
// whole device.
//
// Rules
// 1. Only non-blocking streams of the primary context go: those of green contexts are like them. All
//    others, the default ones above all, stay on the whole device, and are counted by why.
// 2. A stream goes between two submissions, be it that the next one finds another word, be it that the
//    helper does: an event behind all that the old stream has is awaited by the new one first. Work in
//    flight is not touched, and nothing that comes later runs outside of the set, or too early.
// 3. One that captures, or joins a capture, is on the whole device meanwhile: what it captures would stay
//    in the context of its set for ever (a node keeps the context it was made in, whatever stream its
//    graph is launched into: "CUDA Programming Guide", 4.6.5), which others may have by then, or nobody.
//    One that the driver refuses to move stays where it is until it is told another set.
// 4. A call that adds to a stream has it to itself meanwhile. One that waits or asks does not: what it is
//    about is there before it begins. Most are by the one thread that adds to the stream, and cost no
//    locked operation; so the helper looks at a row without its lock, and takes that only to do something.
// 5. Nothing of all this happens in a process that was told no set when it attached first.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "always_inline.h"
#include "channel.h"

namespace tandem::shim::partition {

// Set by the thread that attaches first, before anything is submitted, for good. Relaxed: one load a
// call, and nothing else where it is off.
extern std::atomic<bool> g_on;
inline bool is_on() { return __builtin_expect(g_on.load(std::memory_order_relaxed), 0); }

enum class How : uint8_t {
  kPlain,   // is about the handle itself
  kLook,    // waits, or asks
  kHold,    // adds to the stream, wherever that is
  kHoldIfFree,  // the same, if nobody else does
  kFollow,  // adds to it, and it goes where it is to be first
};

struct Row;

// The driver's stream behind a handle, for one call. Any thread; not while it holds another.
class Stream {
 public:
  // `per_thread`: what NULL means. Inline for `how` to be known: launches have no part of the others'.
  ALWAYS_INLINE Stream(CUstream handle, How how, bool per_thread = false)
      : handle_(handle), real_(handle) {
    if (!is_on() || how == How::kPlain) return;
    if (how == How::kLook) look(per_thread);
    else enter(how, per_thread);
  }
  ~Stream() {
    if (!row_) return;
    if (is_looking_) look_away();
    else leave();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] CUstream real() const { return real_; }
  [[nodiscard]] CUstream handle() const { return handle_; }
  [[nodiscard]] bool is_free() const { return is_free_; }  // false: of kHoldIfFree, nothing is to be added

 private:
  void enter(How how, bool per_thread);
  void enter_slowly(How how, bool per_thread);
  void leave();
  void look(bool per_thread);
  void look_away();

  CUstream handle_, real_;
  Row* row_ = nullptr;
  bool is_looking_ = false;
  bool is_free_ = true;
};

// The device that the process attached on, before `obey`: that of sets.
void attach_on(CUdevice device);

// The page of a daemon that was attached to. What an earlier one said last counts until this one says
// something. First: whether there are sets at all.
void obey(const shm::CommandMemory& memory, bool is_first);

// Helper, every round: has streams go that nothing is submitted to, and tells the daemon what is so. True:
// some have not gone, or have work where they were.
bool look_after(Channel& channel);

// What the job sets of its stream, each of the driver's gets as well.
void copy_settings(CUstream handle);

// A graph is launched: its nodes are in the contexts that they were made in, which is never a set.
void note_graph();

// The stream takes part in something that cannot go along: it is and stays on the whole device.
void keep_home(CUstream handle, shm::StayReason reason);
// Whether it is in a set now.
bool is_in_set(CUstream handle);

// From before a call that may have a stream capture until it has answered: the stream is on the whole
// device, and as long as it captures.
class AtHome {
 public:
  explicit AtHome(CUstream handle);
  ~AtHome();
  AtHome(const AtHome&) = delete;
  AtHome& operator=(const AtHome&) = delete;

 private:
  uint64_t handle_;
  Row* row_ = nullptr;
};

// From before the driver destroys a stream, whose handle may be another one's at once, until it has
// answered: then those behind the handle are destroyed, too, or all is as before.
class Ending {
 public:
  explicit Ending(CUstream handle);
  void end(bool is_gone);  // once
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

 private:
  CUstream handle_;
  Row* row_ = nullptr;
};
// The context is destroyed, with its streams.
void forget_context(CUcontext context);

// A green context holds its primary one. Before the job lets go of that for the last time, or resets it,
// all streams go home and no green context is left; but by a release none in which work goes on, or somebody
// waits: others may hold the primary one whom we do not see.
void note_retained(CUdevice device);
[[nodiscard]] bool is_last_hold(CUdevice device);  // or it is not known who has others
void before_release(CUdevice device, bool may_destroy, bool is_reset);
void after_release(CUdevice device, bool is_gone);

void start_afresh();  // in a forked child, which has no context

}  // namespace tandem::shim::partition
