#include "helper.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>

#include "attach.h"
#include "capture.h"
#include "driver.h"
#include "guard.h"
#include "markers.h"
#include "presence.h"
#include "relaxed.h"
#include "segments.h"
#include "session.h"
#include "slots.h"
#include "thread_state.h"
#include "timing.h"

namespace tandem::shim {

std::atomic<bool> g_helper_sleeps{false};

namespace {

constexpr uint64_t kQuietNs = 50'000;
constexpr uint64_t kBusyRoundNs = 50'000;
// A stream in full swing is closed by its own launches; looking that often would only take its CPU.
constexpr uint64_t kLongestBusyRoundNs = 200'000;
constexpr uint64_t kDrainRoundNs = 1'000'000;   // nothing open, the GPU still works
constexpr uint64_t kIdleRoundNs = 100'000'000;
constexpr uint64_t kVirtualIdleRoundNs = 1'000'000;
constexpr uint64_t kRetryNs = 250'000'000;
constexpr uint64_t kRefineNs = 100'000'000;
constexpr int kHelperAttachMs = 1000;
constexpr uint64_t kStopNs = 50'000'000;

std::atomic<int> g_wake_fd{-1};
std::atomic<bool> g_stopping{false};
// True while the helper may be inside the driver; stop_helper waits for false.
std::atomic<bool> g_in_driver{false};

// What the helper looks after in one round decides how soon the next one is.
enum class Load { kIdle, kDraining, kOpen };

struct Round {
  Load load = Load::kIdle;
  bool in_full_swing = false;  // something was submitted less than kQuietNs ago
  void at_least(Load other) { load = std::max(load, other); }
};

void enter_context(uint64_t context) {
  if (g_driver.cuCtxSetCurrent) g_driver.cuCtxSetCurrent(reinterpret_cast<CUcontext>(context));
}

// A marker in the legacy stream waits for every blocking stream and holds them all back: only right
// behind the stream's own work, never later when another has gone on.
bool others_went_on(const Channel& channel, uint32_t index) {
  const uint64_t last = channel.slots[index].last_submit_ns.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < slot_end(channel); ++i) {
    if (i != index && is_live(channel.streams[i]) &&
        channel.streams[i].blocking.load(std::memory_order_relaxed) &&
        channel.slots[i].last_submit_ns.load(std::memory_order_relaxed) >= last) {
      return true;
    }
  }
  return false;
}

void close_if_quiet(Channel& channel, uint32_t index, uint64_t now_ns, Round* round) {
  const shm::Slot& slot = channel.slots[index];
  const StreamSlot& own = channel.streams[index];
  if (!slot.open.load(std::memory_order_acquire) || !is_live(own)) return;
  const uint64_t stream = own.stream.load(std::memory_order_relaxed);
  if (stream == kPerThreadStream) return;
  if (slot.last_submit_ns.load(std::memory_order_relaxed) + kQuietNs > now_ns) {
    round->at_least(Load::kOpen);
    round->in_full_swing = true;
    return;
  }
  if (stream == kLegacyStream && others_went_on(channel, index)) {
    round->at_least(Load::kDraining);
    return;
  }
  enter_context(own.context.load(std::memory_order_relaxed));
  close_segment(channel, index);
  round->at_least(slot.open.load(std::memory_order_relaxed) ? Load::kOpen : Load::kDraining);
}

void look_after_slot(Channel& channel, uint32_t index, uint64_t now_ns, Round* round) {
  close_if_quiet(channel, index, now_ns, round);
  const shm::Slot& slot = channel.slots[index];
  if (slot.issued.load(std::memory_order_acquire) <= slot.done.load(std::memory_order_acquire))
    return;
  round->at_least(Load::kDraining);
  StreamSlot& own = channel.streams[index];
  if (!try_own(own)) return;
  if (own.mark_by == MarkBy::kEvent && poll_events(channel, index)) round->at_least(Load::kOpen);
  disown(own);
}

void refine_clock(Channel& channel, uint64_t now_ns) {
  static uint64_t next_ns = 0;
  if (now_ns < next_ns || g_clock.is_virtual()) return;
  next_ns = now_ns + kRefineNs;
  g_clock.refine();
  channel.state->control.ns_per_tick_q32.store(g_clock.ns_per_tick_q32(),
                                               std::memory_order_relaxed);
}

void publish(Channel& channel, uint64_t now_ns) {
  shm::StateControl& control = channel.state->control;
  control.helper_tick_ns.store(now_ns, std::memory_order_relaxed);
  channel.gate.acknowledge(channel.command->gate.gate.load(std::memory_order_acquire));
  const bool ungated = channel.gate.stale();
  if (control.ungated.load(std::memory_order_relaxed) != ungated)
    control.ungated.store(ungated, std::memory_order_relaxed);
}

Round look_after(Channel& channel) {
  Round round;
  const uint64_t now_ns = g_clock.now_ns();
  publish(channel, now_ns);
  refine_clock(channel, now_ns);
  if (channel.observe) return round;
  g_in_driver.store(true);
  if (!g_stopping.load()) {
    for (uint32_t i = 0; i < slot_end(channel); ++i) look_after_slot(channel, i, now_ns, &round);
    if (collect_timings()) round.at_least(Load::kDraining);
  }
  g_in_driver.store(false);
  tune_linger(channel);
  show_idle_if_so(channel, now_ns);
  // A latency job's end must be seen soon: others wait for it.
  if (round.load == Load::kDraining && is_latency_class(channel)) round.load = Load::kOpen;
  return round;
}

uint64_t pause_ns(Round round) {
  static uint64_t busy_ns = kBusyRoundNs;
  busy_ns = round.in_full_swing ? std::min(busy_ns * 2, kLongestBusyRoundNs) : kBusyRoundNs;
  if (round.load == Load::kOpen) return busy_ns;
  if (g_clock.is_virtual()) return kVirtualIdleRoundNs;
  return round.load == Load::kDraining ? kDrainRoundNs : kIdleRoundNs;
}

void drain_wake_fd(int fd) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(fd, &count, sizeof(count));
}

// Waits for the socket, a wake-up, or the time.
void sleep_on(int socket, uint64_t ns) {
  const int wake_fd = g_wake_fd.load(std::memory_order_relaxed);
  pollfd wanted[2] = {{wake_fd, POLLIN, 0}, {socket, POLLIN, 0}};
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
  timeout.tv_nsec = static_cast<long>(ns % 1'000'000'000);
  ppoll(wanted, socket >= 0 ? 2 : 1, &timeout, nullptr);
  if (wanted[0].revents) drain_wake_fd(wake_fd);
}

void pause_after(const Channel& channel, Round round) {
  if (g_clock.is_virtual()) {
    g_clock.sleep_until_ns(g_clock.now_ns() + pause_ns(round));
    return;
  }
  const bool idle = round.load == Load::kIdle;
  if (idle) {
    // Announce, then look once more: a submission in between is seen here or sees the flag; the
    // rare one that does neither is found after kIdleRoundNs.
    g_helper_sleeps.store(true);
    if (!all_idle(channel)) round.load = Load::kOpen;
  }
  sleep_on(channel.socket, pause_ns(round));
  if (idle) g_helper_sleeps.store(false);
}

uint64_t jitter_ns() {
  static uint64_t seed = 0;  // set here: a guarded initialiser would pull in the C++ runtime
  if (seed == 0) seed = monotonic_ns() ^ static_cast<uint64_t>(getpid()) << 32;
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (seed >> 33) % (kRetryNs / 4);
}

void try_again() {
  if (g_clock.is_virtual()) {
    g_clock.sleep_until_ns(g_clock.now_ns() + kRetryNs);
  } else {
    sleep_on(-1, kRetryNs + jitter_ns());
  }
  if (!g_stopping.load()) attach(kHelperAttachMs);
}

void* run(void*) {
  prctl(PR_SET_NAME, "tandem", 0, 0, 0);
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  const Reentry everything_is_ours;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (g_driver.cuThreadExchangeStreamCaptureMode) g_driver.cuThreadExchangeStreamCaptureMode(&mode);
  while (!g_stopping.load()) {
    Channel* channel = g_channel.load(std::memory_order_acquire);
    if (!channel) {
      try_again();
    } else if (!read_messages(*channel)) {
      lose_channel();
    } else {
      pause_after(*channel, look_after(*channel));
    }
  }
  return nullptr;
}

}  // namespace

bool start_helper() {
  g_stopping.store(false);
  g_wake_fd.store(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), std::memory_order_relaxed);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited: the job's signals are the job's
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  const bool made = pthread_create(&thread, &attributes, run, nullptr) == 0;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  static std::atomic<bool> registered{false};
  if (made && !registered.exchange(true)) atexit(stop_helper);
  return made;
}

void wake_helper_now() {
  g_helper_sleeps.store(false, std::memory_order_relaxed);
  const uint64_t one = 1;
  const int fd = g_wake_fd.load(std::memory_order_relaxed);
  if (fd < 0) return;
  const int saved = errno;
  [[maybe_unused]] const ssize_t written = write(fd, &one, sizeof(one));
  errno = saved;
}

// Registered after the driver was loaded, so it runs before the driver's own end.
void stop_helper() {
  g_stopping.store(true);
  const uint64_t start = monotonic_ns();
  while (g_in_driver.load() && monotonic_ns() - start < kStopNs) usleep(50);
}

void forget_helper() {
  const int fd = g_wake_fd.exchange(-1);
  if (fd >= 0) close(fd);
  g_helper_sleeps.store(false);
  g_in_driver.store(false);
  g_stopping.store(false);
}

}  // namespace tandem::shim
