#include "helper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>

#include "attach.h"
#include "bias.h"
#include "capture.h"
#include "descriptor.h"
#include "driver.h"
#include "guard.h"
#include "inside.h"
#include "line.h"
#include "markers.h"
#include "mover.h"
#include "offers.h"
#include "own_thread.h"
#include "presence.h"
#include "relaxed.h"
#include "segments.h"
#include "session.h"
#include "slots.h"
#include "streams.h"
#include "thread_state.h"
#include "ties.h"
#include "timing.h"
#include "use.h"
#include "watched.h"

namespace tandem::shim {

std::atomic<bool> g_helper_sleeps{false};

namespace {

constexpr uint64_t kQuietNs = 50'000;
constexpr uint64_t kBusyRoundNs = 50'000;
// A stream in full swing is closed by its own launches; looking that often would only take CPU time
// from it.
constexpr uint64_t kLongestBusyRoundNs = 200'000;
constexpr uint64_t kDrainRoundNs = 1'000'000;  // nothing is open, but the GPU still works
constexpr uint64_t kIdleRoundNs = 100'000'000;
// Between two looks on the virtual clock: when idle, and when awaiting an end.
constexpr uint64_t kVirtualStepNs = 1'000'000;
constexpr uint64_t kEveryChangeNs = 1;
constexpr uint64_t kRetryNs = 250'000'000;
constexpr uint64_t kLongestRetryNs = 60'000'000'000;  // when refused again and again
constexpr uint64_t kRefineNs = 100'000'000;
constexpr uint64_t kWatchersNs = 1'000'000'000;
constexpr int kHelperAttachMs = 1000;
constexpr uint64_t kStopNs = 1'000'000'000;

// A pipe: a write to it wakes the helper, which reads it. Made and dropped while no submitter can
// use it, and by the helper when the job has closed it.
Descriptor g_wake_read, g_wake_write;
std::atomic<bool> g_stopping{false};
// True while the helper may be inside the driver; stop_helper waits for false.
std::atomic<bool> g_in_driver{false};

// Surrounds whatever may call the driver. False once the process is ending: then the driver is left
// alone.
class InDriver {
 public:
  InDriver() {
    g_in_driver.store(true);
    // Both seq_cst: stop_helper writes g_stopping and then reads g_in_driver.
    allowed_ = !g_stopping.load();
  }
  ~InDriver() { g_in_driver.store(false); }
  InDriver(const InDriver&) = delete;
  InDriver& operator=(const InDriver&) = delete;
  explicit operator bool() const { return allowed_; }

 private:
  bool allowed_;
};

// What the helper finds in one round decides how soon the next one follows.
enum class Load { kIdle, kDraining, kOpen };

struct Round {
  Load load = Load::kIdle;
  bool in_full_swing = false;  // something was submitted less than kQuietNs ago
  bool only_looked = true;     // nothing was written for which a thread at a gate waits
  void at_least(Load other) { load = std::max(load, other); }
};

// Whether a marker may be added. If not, the helper queries whether what is open has ended, which
// holds up nobody and orders nothing.
bool may_add_to(const Channel& channel, uint32_t index, uint64_t stream) {
  const StreamSlot& own = channel.streams[index];
  const uint64_t context = own.context.load(std::memory_order_relaxed);
  // A thread that is inside with a blocking stream may have added to it already.
  if (stream == kLegacyStream &&
      (others_went_on(channel, index) || others_are_inside(channel, context)))
    return false;
  return !is_anyone_inside(own) && !is_anyone_kept(channel, context);
}

void close_if_quiet(Channel& channel, uint32_t index, uint64_t now_ns, Round* round) {
  const shm::Slot& slot = channel.slots[index];
  const StreamSlot& own = channel.streams[index];
  if (!slot.open.load(std::memory_order_acquire) || !is_live(own)) return;
  const uint64_t stream = own.stream.load(std::memory_order_relaxed);
  if (!is_for_others(own, stream)) return;
  if (slot.last_submit_ns.load(std::memory_order_relaxed) + kQuietNs > now_ns) {
    round->at_least(Load::kOpen);
    round->in_full_swing = true;
    return;
  }
  round->only_looked = false;
  const bool may_add = may_add_to(channel, index, stream);
  if (!try_own(channel.streams[index])) return round->at_least(Load::kOpen);
  if (!own.ending.load(std::memory_order_relaxed)) {
    make_current(own.home.load(std::memory_order_relaxed));
    if (may_add) close_owned_segment(channel, index);
    else settle_owned(channel, index);
  }
  disown(channel.streams[index]);
  const bool is_open = slot.open.load(std::memory_order_relaxed) != 0;
  round->at_least(is_open && (may_add || is_latency_class(channel)) ? Load::kOpen
                                                                    : Load::kDraining);
}

// Counts open work that will get no marker as ended when the last existing marker has.
void forget_open(Channel& channel, uint32_t index, Round* round) {
  shm::Slot& slot = channel.slots[index];
  StreamSlot& own = channel.streams[index];
  if (!slot.open.load(std::memory_order_acquire) || !try_own(own)) return;
  round->only_looked = false;
  if (slot.issued.load(std::memory_order_acquire) <= slot.done.load(std::memory_order_acquire))
    slot.open.store(0, std::memory_order_release);
  disown(own);
}

// A stream may go away with something open: in a capture, or together with its thread.
void forget_open_of_the_gone(Channel& channel, uint32_t index, Round* round) {
  if (channel.streams[index].stream.load(std::memory_order_acquire) == kStreamRetired)
    forget_open(channel, index, round);
}

void look_after_slot(Channel& channel, uint32_t index, uint64_t now_ns, Round* round) {
  close_if_quiet(channel, index, now_ns, round);
  forget_open_of_the_gone(channel, index, round);
  const shm::Slot& slot = channel.slots[index];
  if (slot.issued.load(std::memory_order_acquire) <= slot.done.load(std::memory_order_acquire))
    return;
  round->at_least(Load::kDraining);
  StreamSlot& own = channel.streams[index];
  if (!try_own(own)) return;
  if (own.mark_by == MarkBy::kEvent && !own.ending.load(std::memory_order_relaxed)) {
    round->only_looked = false;
    if (poll_events(channel, index)) round->at_least(Load::kOpen);
  }
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
  const bool ungated = channel.gate.stale() || channel.observe.load(std::memory_order_relaxed);
  if (control.ungated.load(std::memory_order_relaxed) != ungated)
    control.ungated.store(ungated, std::memory_order_relaxed);
  if (channel.gate.stale()) swap::bring_back();
}

// A debugger may come and go.
void look_for_watchers(Channel& channel, uint64_t now_ns) {
  static uint64_t next_ns = 0;
  if (now_ns < next_ns) return;
  next_ns = now_ns + kWatchersNs;
  channel.observe.store(g_settings.observe || is_watched(), std::memory_order_relaxed);
}

Round look_after(Channel& channel) {
  Round round;
  const uint64_t now_ns = g_clock.now_ns();
  look_for_watchers(channel, now_ns);
  publish(channel, now_ns);
  if (const InDriver in_driver;
      in_driver && !ties::tell(channel.socket.number(), channel.features, &channel.told)) {
    round.at_least(Load::kDraining);
  }
  refine_clock(channel, now_ns);
  if (channel.observe.load(std::memory_order_relaxed)) {
    for (uint32_t i = 0; i < slot_end(channel); ++i) forget_open(channel, i, &round);
    return round;
  }
  if (const InDriver in_driver; in_driver) {
    for (uint32_t i = 0; i < slot_end(channel); ++i) look_after_slot(channel, i, now_ns, &round);
    if (collect_timings()) round.at_least(Load::kDraining);
    if (partition::look_after(channel)) round.at_least(Load::kOpen);
  }
  partition::allow_biases();  // takes long, but the end of the process waits only for what is above
  tune_linger(channel);
  const std::atomic<uint64_t>& busy_until_ns = channel.presence->busy_until_ns;
  const uint64_t shown_ns = busy_until_ns.load(std::memory_order_relaxed);
  show_idle_if_so(channel, now_ns);
  if (busy_until_ns.load(std::memory_order_relaxed) != shown_ns) round.only_looked = false;
  return round;
}

uint64_t pause_ns(Round round) {
  static uint64_t busy_ns = kBusyRoundNs;
  busy_ns = round.in_full_swing ? std::min(busy_ns * 2, kLongestBusyRoundNs) : kBusyRoundNs;
  if (round.load == Load::kOpen) return busy_ns;
  return round.load == Load::kDraining ? kDrainRoundNs : kIdleRoundNs;
}

void make_wake_pipe() {
  int ends[2] = {-1, -1};
  // Without it, the helper looks from time to time.
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
  g_wake_read.adopt(ends[0]);
  g_wake_write.adopt(ends[1]);
}

void empty_wake_pipe(int fd) {
  char bytes[64];
  while (read(fd, bytes, sizeof(bytes)) == sizeof(bytes)) {
  }
}

// Waits for the daemon, another process, a wake-up, or the timeout.
void sleep_on(int socket, uint64_t ns) {
  if (g_wake_read.number() < 0) make_wake_pipe();
  const int wake_fd = g_wake_read.number();
  const int openers = swap::openers_socket();  // ppoll skips negative descriptors
  pollfd wanted[3] = {{wake_fd, POLLIN, 0}, {socket, POLLIN, 0}, {openers, POLLIN, 0}};
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
  timeout.tv_nsec = static_cast<long>(ns % 1'000'000'000);
  ppoll(wanted, 3, &timeout, nullptr);
  if (wanted[0].revents) empty_wake_pipe(wake_fd);
}

// The end of a latency job's work must be seen soon, because others wait for it.
bool awaits_end(const Channel& channel, Round round) {
  return round.load == Load::kDraining && is_latency_class(channel);
}

// A round in which nothing was done is no reason for threads at a gate, here or elsewhere, to look
// again. The device reports the end of what a marker follows at once, as a change like any other.
void pause_virtual(const Channel& channel, Round round, bool was_told) {
  const bool only_looked = round.only_looked && !was_told;
  const uint64_t until_ns = g_clock.now_ns() + pause_ns(round);
  if (round.load == Load::kIdle)
    return g_clock.wait_for_step(kVirtualStepNs, until_ns, only_looked);
  const uint64_t step_ns = awaits_end(channel, round) ? kEveryChangeNs : 0;
  g_clock.wait_for_change(step_ns, until_ns, only_looked);
}

void pause_after(const Channel& channel, Round round, bool was_told) {
  if (g_clock.is_virtual()) return pause_virtual(channel, round, was_told);
  if (awaits_end(channel, round)) round.load = Load::kOpen;
  const bool idle = round.load == Load::kIdle;
  if (idle) {
    // Announce, then look once more: a submission in between is seen here or sees the flag. In the
    // rare case of neither, it is found after kIdleRoundNs.
    g_helper_sleeps.store(true);
    if (!all_idle(channel)) round.load = Load::kOpen;
  }
  sleep_on(channel.socket.number(), pause_ns(round));
  if (idle) g_helper_sleeps.store(false);
}

uint64_t jitter_ns(uint64_t most_ns) {
  static uint64_t seed = 0;  // seeded below: a guarded initialiser would pull in the C++ runtime
  if (seed == 0) seed = monotonic_ns() ^ static_cast<uint64_t>(getpid()) << 32;
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (seed >> 33) % most_ns;
}

void answer_others() {
  if (const InDriver in_driver; in_driver) swap::answer_openers();
}

// Nothing is marked on a lost channel, so no events are created after this. Events whose slot
// somebody owns right now stay.
void give_up(Channel& channel) {
  channel.gate.lose();
  if (const InDriver in_driver; in_driver) {
    for (StreamSlot& slot : channel.streams) {
      if (!try_own(slot)) continue;
      reuse_events(slot, false);
      disown(slot);
    }
  }
  lose_channel();
}

void try_again() {
  static uint64_t retry_ns = kRetryNs;
  if (g_clock.is_virtual()) {
    g_clock.sleep_until_ns(g_clock.now_ns() + retry_ns);
  } else {
    sleep_on(-1, retry_ns + jitter_ns(retry_ns / 4));
  }
  if (g_stopping.load()) return;
  const bool refused = attach(kHelperAttachMs) == Attachment::kTurnedAway;
  retry_ns = refused ? std::min(2 * retry_ns, kLongestRetryNs) : kRetryNs;
}

void* run(void*) {
  prctl(PR_SET_NAME, "tandem", 0, 0, 0);
  prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  const Reentry everything_is_ours;
  line::never_count_thread();
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  if (g_driver.cuThreadExchangeStreamCaptureMode) g_driver.cuThreadExchangeStreamCaptureMode(&mode);
  // While shut, exit handlers may wait for memory that is away. The driver is left alone by then.
  while (!g_stopping.load() || swap::is_shut()) {
    Channel* channel = g_channel.load(std::memory_order_acquire);
    answer_others();
    if (!channel) {
      try_again();
      continue;
    }
    bool was_told = false;
    if (!read_messages(*channel, &was_told)) {
      give_up(*channel);
      swap::bring_back();
    } else {
      pause_after(*channel, look_after(*channel), was_told);
    }
  }
  return nullptr;
}

}  // namespace

bool start_helper() {
  g_stopping.store(false);
  make_wake_pipe();
  const bool made = start_own_thread(run);
  static std::atomic<bool> registered{false};
  if (made && !registered.exchange(true)) atexit(stop_helper);
  return made;
}

// An idle daemon looks rarely: without the doorbell it would charge nothing for a short burst of
// work.
void wake_helper_now() {
  g_helper_sleeps.store(false, std::memory_order_relaxed);
  if (Channel* channel = g_channel.load(std::memory_order_acquire)) ring_doorbell(*channel);
  const int fd = g_wake_write.number();
  if (fd < 0) return;
  const int saved = errno;
  [[maybe_unused]] const ssize_t written = write(fd, "", 1);
  errno = saved;
}

// Registered after the driver was loaded, so it runs before the driver's own exit handler, and
// before handlers that the program registered earlier, which may still want its memory.
void stop_helper() {
  g_stopping.store(true);
  swap::end_moving();
  const uint64_t start = monotonic_ns();
  while (g_in_driver.load() && monotonic_ns() - start < kStopNs) usleep(50);
}

void forget_helper() {
  g_wake_read.drop();
  g_wake_write.drop();
  g_helper_sleeps.store(false);
  g_in_driver.store(false);
  g_stopping.store(false);
}

}  // namespace tandem::shim
