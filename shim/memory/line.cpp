#include "line.h"

#include <pthread.h>

#include <algorithm>

#include "capture.h"
#include "memory.h"
#include "mutex.h"
#include "thread_state.h"
#include "wait.h"

namespace tandem::shim::line {

std::atomic<uint32_t> g_waiting{0};

namespace {

constexpr uint32_t kPlaces = 64;
constexpr uint64_t kSliceNs = 20'000'000;  // how often a waiter checks for a lost daemon
constexpr uint64_t kVirtualStepNs = 500'000;
// Memory that programs outside the daemon's jobs give back is noticed only by trying.
constexpr uint64_t kRetryNs = 20'000'000;
constexpr uint64_t kLongestNs = uint64_t{UINT16_MAX} * 1'000'000'000;

struct Request {
  uint64_t ticket = 0;  // 0 = free
  uint64_t bytes = 0;
  uint32_t device = 0;
  bool is_limited = true;
  uint32_t tried_round = 0;
};

// Innermost lock: under it, only stores to the shared page are made.
pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
Request g_requests[kPlaces];         // under g_lock
uint64_t g_newest = 0;               // under g_lock
std::atomic<uint64_t> g_first{0};    // ticket of the first in line. Release under g_lock; acquire
std::atomic<uint32_t> g_news{0};     // futex word: g_first changed
std::atomic<uint32_t> g_threads{0};  // that use the device

// The lock is held.
Request* with(uint64_t ticket) {
  for (Request& request : g_requests) {
    if (request.ticket == ticket) return &request;
  }
  return nullptr;
}

Request* first_in_line() {
  Request* first = nullptr;
  for (Request& request : g_requests) {
    if (request.ticket && (!first || request.ticket < first->ticket)) first = &request;
  }
  return first;
}

uint32_t flags_of(const Request& request) {
  const uint64_t limit = memory::bound_bytes(), used = memory::used_bytes(request.device);
  const bool of_quota = request.is_limited && limit != shm::kNoLimit &&
                        (used > limit || request.bytes > limit - used);
  const bool alone = g_waiting.load() >= g_threads.load();
  return (of_quota ? shm::kWaitForQuota : 0) | (alone ? shm::kWaitsAlone : 0);
}

// The lock is held, so there is one writer at a time.
void show_first(Channel& channel) {
  shm::StateMemory& shown = channel.state->memory;
  const Request* first = first_in_line();
  const uint64_t ticket = first ? first->ticket : 0;
  // A reader that reads the same ticket twice has read what belongs to it in between.
  shown.wait_ticket.store(0, std::memory_order_relaxed);
  if (first) {  // release: after the zero
    shown.wait_bytes.store(first->bytes, std::memory_order_release);
    shown.wait_round.store(first->tried_round, std::memory_order_release);
    shown.wait_flags.store(flags_of(*first), std::memory_order_release);
  }
  shown.wait_ticket.store(ticket, std::memory_order_release);
  if (g_first.exchange(ticket, std::memory_order_release) == ticket) return;
  g_news.fetch_add(1, std::memory_order_release);
  futex_wake_all(g_news);
  ring_doorbell(channel);
}

uint64_t join(Channel& channel, const Want& want) {
  const HoldsMutex lock(&g_lock);
  Request* place = with(0);
  if (!place) return 0;
  *place = {++g_newest, want.bytes, want.device, want.is_limited, 0};
  g_waiting.fetch_add(1);
  show_first(channel);
  return place->ticket;
}

void leave(Channel& channel, uint64_t ticket) {
  const HoldsMutex lock(&g_lock);
  Request* place = with(ticket);
  if (!place) return;
  *place = {};
  g_waiting.fetch_sub(1);
  show_first(channel);
}

void note_refused(Channel& channel, uint64_t ticket, uint32_t round) {
  const HoldsMutex lock(&g_lock);
  if (Request* place = with(ticket)) place->tried_round = round;
  show_first(channel);
}

}  // namespace

void wait_at_gate() {
  Channel* channel = g_channel.load(std::memory_order_acquire);
  if (channel && !channel->observe.load(std::memory_order_relaxed) && !this_thread_captures())
    channel->gate.admit_memory();
}

bool may_wait() {
  const Channel* channel = g_channel.load(std::memory_order_acquire);
  return channel && channel->command->memory.wait_ns.load(std::memory_order_relaxed) != 0 &&
         !any_capture() && !channel->observe.load(std::memory_order_relaxed);
}

Place::Place(const Want& want) : channel_(g_channel.load(std::memory_order_acquire)) {
  if (!channel_) return;
  count_thread();
  const uint64_t wait_ns = channel_->command->memory.wait_ns.load(std::memory_order_relaxed);
  until_ns_ = g_clock.now_ns() + std::min(wait_ns, kLongestNs);
  ticket_ = join(*channel_, want);
}

Place::~Place() {
  if (!channel_) return;
  leave(*channel_, ticket_);
}

bool Place::wait() {
  if (!ticket_ || is_last_) {
    memory::count_refused(is_not_to_wait_ ? g_thread.refused_by : shm::Refusal::kLine);
    return false;
  }
  if (was_let_go_) {
    was_let_go_ = false;
    retry_ns_ = g_clock.now_ns() + kRetryNs;
    note_refused(*channel_, ticket_, trying_);
  }
  for (bool again = false;; again = true) {
    const shm::CommandMemory& told = channel_->command->memory;
    const uint32_t round = told.line_round.load(std::memory_order_acquire);  // daemon: release
    if (is_over()) return try_last();
    if (is_first() && told.line_ticket.load(std::memory_order_acquire) == ticket_) {
      if (told.line.load(std::memory_order_acquire) & shm::kLineRefused) {
        // The thread lined up only because others wait, and is not to wait: it may have what there
        // is.
        if (!trying_ && g_thread.refused_by == shm::Refusal::kLine) {
          g_thread.refused_by = shm::Refusal::kDevice;  // unless the limit says no
          is_not_to_wait_ = true;
          return try_last();
        }
        // Refused at once, like a demand that can never be met; counted for whoever refused before
        // the line did.
        memory::count_refused(trying_ ? shm::Refusal::kLine : g_thread.refused_by);
        return false;
      }
      if (round != trying_ || g_clock.now_ns() >= retry_ns_) {
        trying_ = round;
        return was_let_go_ = true;
      }
    }
    pause(round, again);
  }
}

bool Place::try_last() { return is_last_ = true; }

bool Place::is_first() const { return g_first.load(std::memory_order_acquire) == ticket_; }

bool Place::is_over() const {
  const uint32_t flags = channel_->command->gate.flags.load(std::memory_order_relaxed);
  return channel_->gate.lost() || channel_->gate.stale() || (flags & shm::kFlagReleased) ||
         g_clock.now_ns() >= until_ns_;
}

void Place::pause(uint32_t round, bool again) {
  const uint64_t start = g_clock.now_ns();
  if (g_clock.is_virtual()) {
    const uint64_t retry_ns = retry_ns_ > start ? retry_ns_ : start + kSliceNs;
    g_clock.wait_for_step(kVirtualStepNs, std::min({start + kSliceNs, retry_ns, until_ns_}), again);
  } else if (const uint32_t news = g_news.load(std::memory_order_acquire); !is_first()) {
    futex_wait(g_news, news, std::min(kSliceNs, until_ns_ - std::min(until_ns_, start)));
  } else {
    futex_wait(channel_->command->memory.line_round, round,
               std::min(kSliceNs, until_ns_ - std::min(until_ns_, start)));
  }
  constexpr auto kReason = static_cast<uint32_t>(shm::WaitReason::kMemory);
  const uint64_t now = g_clock.now_ns();
  if (now > start)
    channel_->state->waits.total_ns[kReason].fetch_add(now - start, std::memory_order_relaxed);
}

void count_thread() {
  if (g_thread.counted != Counted::kNotYet) return;
  g_thread.counted = Counted::kYes;
  g_threads.fetch_add(1);
  watch_thread_end();
}

void uncount_thread() {
  if (g_thread.counted != Counted::kYes) return;
  g_thread.counted = Counted::kNotYet;
  g_threads.fetch_sub(1);
  if (g_waiting.load() == 0) return;
  const HoldsMutex lock(&g_lock);  // those who wait may now be alone
  if (Channel* channel = g_channel.load(std::memory_order_acquire)) show_first(*channel);
}

void never_count_thread() { g_thread.counted = Counted::kNever; }

void start_afresh() {
  pthread_mutex_init(&g_lock, nullptr);  // another thread of the parent may have held it
  for (Request& request : g_requests) request = {};
  g_waiting.store(0);
  g_threads.store(0);
  g_first.store(0);
}

}  // namespace tandem::shim::line
