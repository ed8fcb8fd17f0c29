// Streams of a job that move to the set of SMs that the daemon assigns to the process. The job
// keeps its handle; behind the handle is one driver stream for each set of SMs that it has been in,
// and the handle's own stream for the whole device.
//
// Rules
// 1. Only non-blocking streams of the primary context move, because streams of green contexts are
//    like them. All others, the default ones above all, stay on the whole device, and are counted
//    by reason.
// 2. A stream moves between two submissions, either because the next submission finds another word
//    or because the helper moves it: the new driver stream first waits for an event behind all that
//    the old one has. Work in flight is not touched, and nothing that comes later runs outside the
//    set, or too early.
// 3. A stream that captures, or joins a capture, is on the whole device meanwhile: otherwise what
//    it captures would stay in the context of its set for ever (a node keeps the context in which
//    it was made, whatever stream its graph is launched into: "CUDA Programming Guide", 4.6.5), and
//    by then others, or nobody, may have that set. A stream that the driver refuses to move stays
//    where it is until it is told another set.
// 4. A call that adds to a stream has exclusive use of it meanwhile. A call that waits or queries
//    does not: what it is about exists before it begins. Most calls come from the one thread that
//    adds to the stream and cost no locked operation; so the helper looks at a row without its
//    lock, and takes the lock only to change something.
// 5. None of this happens in a process that was told no set when it first attached.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

#include "always_inline.h"
#include "channel.h"

namespace tandem::shim::partition {

// Set for good by the first thread to attach, before anything is submitted. Relaxed: one load per
// call, and nothing else where it is off.
extern std::atomic<bool> g_on;
inline bool is_on() { return __builtin_expect(g_on.load(std::memory_order_relaxed), 0); }

enum class How : uint8_t {
  kPlain,       // concerns the handle itself
  kLook,        // waits or queries
  kHold,        // adds to the stream, wherever it is
  kHoldIfFree,  // the same, if no other thread does
  kFollow,      // adds to it, after it has moved to where it belongs
};

struct Row;

// The driver's stream behind a handle, for one call. Any thread, but not while the thread holds
// another one.
class Stream {
 public:
  // `per_thread`: the meaning of NULL. Inline so that `how` is known: launches then contain none of
  // the other cases.
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
  // False: kHoldIfFree did not get the stream, so nothing may be added.
  [[nodiscard]] bool is_free() const { return is_free_; }

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

// Sets the device on which the process attached, before `obey`: sets are on that device.
void attach_on(CUdevice device);

// Takes the page of the daemon to which the process has attached. What an earlier daemon said last
// counts until this one says something. `is_first`: decides whether there are sets at all.
void obey(const shm::CommandMemory& memory, bool is_first);

// Helper, every round: moves streams to which nothing is submitted, and reports the state to the
// daemon. True: some have not moved, or still have work where they were.
bool look_after(Channel& channel);

// Copies the settings of the job's stream, after it has changed one, to each driver stream behind
// the handle.
void copy_settings(CUstream handle);

// A graph is launched: its nodes are in the contexts in which they were made, which is never a set.
void note_graph();

// The stream takes part in something that cannot move: it goes to the whole device and stays there.
void keep_home(CUstream handle, shm::StayReason reason);
// Whether the stream is in a set now.
bool is_in_set(CUstream handle);

// Covers a call that may make a stream capture, from before the call until it has returned: the
// stream is on the whole device for that time, and as long as it captures.
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

// Covers the destruction of a stream, from before the call, since its handle may belong to another
// stream at once, until the driver has answered: then the streams behind the handle are destroyed
// too, or all is as before.
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

// A green context holds its primary one. Before the job releases that for the last time, or resets
// it, all streams go home and no green context is left. A mere release, however, keeps the green
// contexts in which work goes on, and those with a stream for which somebody waits: the primary
// context may have holders that the shim does not see.
void note_retained(CUdevice device);
[[nodiscard]] bool is_last_hold(CUdevice device);  // or it is not known whether others hold it
void before_release(CUdevice device, bool may_destroy, bool is_reset);
void after_release(CUdevice device, bool is_gone);

void start_afresh();  // in a forked child, which has no context

}  // namespace tandem::shim::partition
