#include "mark_limit.h"
#include "memory.h"
#include "presence.h"
#include "session.h"
#include "short_lock.h"
#include "tandem_mark.h"
#include "thread_state.h"
#include "tracing.h"

namespace tandem::shim {
namespace {

// Wishes not to lose the GPU, of all threads: while any is open, the latest end counts.
class Wishes {
 public:
  // `channel` may be null: a wish may begin under one daemon and end under another.
  void begin(Channel* channel, uint64_t for_ns) {
    const HoldsShortLock held(&lock_);
    ++open_;
    if (!channel) return;
    const uint64_t now_ns = g_clock.now_ns();
    const uint64_t end_ns = for_ns < UINT64_MAX - now_ns ? now_ns + for_ns : UINT64_MAX;
    std::atomic<uint64_t>& until_ns = channel->state->marks.critical_until_ns;
    if (end_ns > until_ns.load(std::memory_order_relaxed))
      until_ns.store(end_ns, std::memory_order_release);
  }

  void end(Channel* channel) {
    const HoldsShortLock held(&lock_);
    if (open_ > 0) --open_;
    if (channel && open_ == 0)
      channel->state->marks.critical_until_ns.store(0, std::memory_order_release);
  }

  void start_afresh() {
    lock_.start_afresh();
    open_ = 0;
  }

 private:
  ShortLock lock_;
  uint32_t open_ = 0;
};

Wishes g_wishes;

void apply(Channel& channel, int kind, uint64_t id, uint64_t now_ns) {
  shm::StateMarks& marks = channel.state->marks;
  switch (kind) {
    case TANDEM_MARK_STEP:
      memory::end_iteration();
      marks.last_step_ns.store(now_ns, std::memory_order_relaxed);
      stop_at_limit(channel, shm::LimitKind::kStep,
                    marks.steps.fetch_add(1, std::memory_order_release) + 1);
      break;
    case TANDEM_MARK_PHASE_BEGIN:
    case TANDEM_MARK_PHASE_END:
      marks.phase_since_ns.store(now_ns, std::memory_order_relaxed);
      marks.phase_hash.store(kind == TANDEM_MARK_PHASE_BEGIN ? id : 0, std::memory_order_release);
      if (kind == TANDEM_MARK_PHASE_BEGIN)
        stop_at_limit(channel, shm::LimitKind::kPhase,
                      marks.begun_phases.fetch_add(1, std::memory_order_release) + 1);
      break;
    default: break;
  }
}

void record_mark(Channel& channel, int kind, uint64_t id, uint64_t value, uint64_t ticks) {
  shm::Record record{};
  record.ticks = ticks;
  record.kind = static_cast<uint8_t>(shm::RecordKind::kMark);
  record.flags = static_cast<uint8_t>(kind);
  record.slot = 0xffff;
  record.thread = thread_id();
  record.object = id;
  record.value = value;
  write_record(channel, record);
}

}  // namespace

void forget_wishes() { g_wishes.start_afresh(); }

}  // namespace tandem::shim

extern "C" __attribute__((visibility("default"))) int tandem_mark_v1(int kind, uint64_t id,
                                                                     uint64_t value) {
  using namespace tandem::shim;
  if (kind < TANDEM_MARK_STEP || kind > TANDEM_MARK_REQUEST_END) return -1;
  if (tracing::is_on()) tracing::write_mark(kind, id, value);
  Channel* channel = g_channel.load(std::memory_order_acquire);
  if (kind == TANDEM_MARK_REQUEST_BEGIN) count_request(channel, 1);
  if (kind == TANDEM_MARK_REQUEST_END) count_request(channel, -1);
  if (kind == TANDEM_MARK_CRITICAL && value) g_wishes.begin(channel, value);
  if (kind == TANDEM_MARK_CRITICAL && !value) g_wishes.end(channel);
  if (!channel) return 0;
  const uint64_t ticks = tandem::shim::g_clock.ticks();
  // Whoever sees on the page that a step has ended also finds its record.
  record_mark(*channel, kind, id, value, ticks);
  apply(*channel, kind, id, g_clock.ns(ticks));
  return 0;
}

extern "C" __attribute__((visibility("default"))) int tandem_memory_is_wanted_v1(void) {
  using namespace tandem;
  const shim::Channel* channel = shim::g_channel.load(std::memory_order_acquire);
  if (!channel || channel->gate.lost()) return 0;
  return (channel->command->memory.line.load(std::memory_order_relaxed) & shm::kLineAhead) != 0;
}

extern "C" __attribute__((visibility("default"))) uint32_t tandem_pause_v1(uint32_t ready) {
  using namespace tandem;
  const shim::Channel* channel = shim::g_channel.load(std::memory_order_acquire);
  if (!channel) return 0;
  shm::StateMarks& marks = channel->state->marks;
  // On each channel both start unset, so both are written each time; the daemon is woken only for
  // news.
  const bool is_news = marks.pause_ready.load(std::memory_order_relaxed) != ready ||
                       !marks.listens.load(std::memory_order_relaxed);
  marks.pause_ready.store(ready, std::memory_order_release);
  marks.listens.store(1, std::memory_order_release);
  if (is_news) shim::ring_doorbell(*channel);
  if (channel->gate.lost() || channel->gate.stale()) return 0;
  return channel->command->gate.pause.load(std::memory_order_relaxed);
}

extern "C" __attribute__((visibility("default"))) void tandem_pause_end_v1(void) {
  using namespace tandem;
  const shim::Channel* channel = shim::g_channel.load(std::memory_order_acquire);
  if (!channel) return;
  channel->state->marks.listens.store(0, std::memory_order_release);
  shim::ring_doorbell(*channel);
}

extern "C" __attribute__((visibility("default"))) int tandem_is_managed_v1(void) {
  return tandem::shim::g_channel.load(std::memory_order_acquire) != nullptr;
}
