#include "segments.h"

#include <algorithm>

#include "capture.h"
#include "driver.h"
#include "faults.h"
#include "inside.h"
#include "markers.h"
#include "relaxed.h"
#include "slots.h"
#include "streams.h"
#include "thread_state.h"

namespace tandem::shim {
namespace {

bool is_unfinished(const shm::Slot& slot) {
  return slot.open.load(std::memory_order_acquire) != 0 ||
         slot.issued.load(std::memory_order_acquire) > slot.done.load(std::memory_order_acquire);
}

bool may_mark(const Channel& channel, uint32_t index) {
  const StreamSlot& slot = channel.streams[index];
  const uint64_t stream = slot.stream.load(std::memory_order_acquire);
  if (stream >= kStreamRetired) return false;
  // On every other thread this handle means another stream.
  if (stream == kPerThreadStream && slot.thread.load(std::memory_order_relaxed) != thread_id())
    return false;
  // In another context, a default stream's handle means another stream, and for other streams the
  // driver may refuse a marker: both are left to the helper, which makes their context current.
  // Streams of green contexts are an exception: work may be put into them from the primary context.
  if (!slot.green.load(std::memory_order_relaxed) &&
      slot.context.load(std::memory_order_relaxed) != current_context()) {
    return false;
  }
  if (stream == kLegacyStream && others_went_on(channel, index)) return false;
  if (!any_capture() || planted(Fault::kMarkInCapture)) return true;
  return stream != kLegacyStream && !is_capturing(as_stream(stream));
}

void record_segment(Channel& channel, uint32_t index, uint64_t value, uint64_t est_ns) {
  shm::Record record{};
  record.ticks = g_clock.ticks();
  record.kind = static_cast<uint8_t>(shm::RecordKind::kSegment);
  record.slot = static_cast<uint16_t>(index);
  record.thread = thread_id();
  record.stream = channel.streams[index].stream.load(std::memory_order_relaxed);
  record.value = value;
  record.duration_ns = est_ns;
  write_record(channel, record);
}

bool all_marked(const Channel& channel) {
  for (uint32_t i = 0; i < slot_end(channel); ++i) {
    if (channel.slots[i].open.load(std::memory_order_relaxed) != 0) return false;
  }
  return true;
}

// Once per segment, so that launching threads share no counter; called by the slot's owner.
void tell_launches(Channel& channel, StreamSlot& slot) {
  const uint64_t launches = slot.launches.load(std::memory_order_relaxed);
  if (launches == slot.launches_told) return;
  channel.state->marks.launches.fetch_add(launches - slot.launches_told, std::memory_order_relaxed);
  slot.launches_told = launches;
}

void mark(Channel& channel, uint32_t index) {
  shm::Slot& slot = channel.slots[index];
  tell_launches(channel, channel.streams[index]);
  // Read before the marker goes in: what others add from here on may come after it, and stays open.
  const uint64_t open = slot.open.load(std::memory_order_acquire);
  const uint64_t est_ns = slot.open_est_ns.load(std::memory_order_relaxed);
  if (open == 0) return;
  const uint64_t value = slot.issued.load(std::memory_order_relaxed) + 1;
  {
    const RelaxedCapture relaxed;
    if (!put_marker(channel, index, value)) return;
  }
  // Starts after what runs; if nothing runs, an earlier prediction was too long and is dropped.
  const bool runs = value - 1 > slot.done.load(std::memory_order_relaxed);
  const uint64_t previous_end = runs ? slot.predicted_end_ns.load(std::memory_order_relaxed) : 0;
  slot.predicted_end_ns.store(std::max(previous_end, g_clock.now_ns()) + est_ns,
                              std::memory_order_relaxed);
  slot.issued.store(value, std::memory_order_release);  // daemon: acquire
  slot.open_est_ns.store(0, std::memory_order_relaxed);
  slot.open.fetch_sub(open, std::memory_order_release);
  record_segment(channel, index, value, est_ns);
}

template <class Which>
void close_each(Channel& channel, Which which) {
  if (channel.observe || all_marked(channel)) return;
  const OthersInside others(channel);
  for (uint32_t i = 0; i < slot_end(channel); ++i) {
    const StreamSlot& slot = channel.streams[i];
    if (which(slot) && !others.are_in(slot.context.load(std::memory_order_relaxed)))
      close_segment(channel, i);
  }
}

}  // namespace

bool others_went_on(const Channel& channel, uint32_t index) {
  const uint64_t last = channel.slots[index].last_submit_ns.load(std::memory_order_relaxed);
  const uint64_t context = channel.streams[index].context.load(std::memory_order_relaxed);
  // Nothing is known of those.
  if (channel.has_unslotted.load(std::memory_order_relaxed)) return true;
  for (uint32_t i = 0; i < slot_end(channel); ++i) {
    const StreamSlot& other = channel.streams[i];
    if (i == index || !is_live(other) || !other.blocking.load(std::memory_order_relaxed) ||
        other.context.load(std::memory_order_relaxed) != context) {
      continue;
    }
    // There is no telling whether that wait is over.
    if (other.last_wait_ns.load(std::memory_order_relaxed) >= last) return true;
    const shm::Slot& slot = channel.slots[i];
    if (is_unfinished(slot) && slot.last_submit_ns.load(std::memory_order_relaxed) >= last)
      return true;
  }
  return false;
}

void settle_owned(Channel& channel, uint32_t index) {
  if (!g_driver.cuStreamQuery || any_capture()) return;
  const uint64_t open = channel.slots[index].open.load(std::memory_order_acquire);
  const uint64_t stream = channel.streams[index].stream.load(std::memory_order_relaxed);
  if (stream >= kStreamRetired) return;
  const partition::Stream asked(as_stream(stream), partition::How::kLook);
  if (g_driver.cuStreamQuery(asked.real()) != CUDA_SUCCESS) return;
  // Before the slot may look as if nothing unreported were left.
  tell_launches(channel, channel.streams[index]);
  channel.slots[index].open.fetch_sub(open, std::memory_order_release);
}

void close_or_settle_owned(Channel& channel, uint32_t index) {
  if (channel.slots[index].open.load(std::memory_order_relaxed) == 0) return;
  const uint64_t context = channel.streams[index].context.load(std::memory_order_relaxed);
  if (is_anyone_kept(channel, context)) settle_owned(channel, index);
  else close_owned_segment(channel, index);
}

void close_segment(Channel& channel, uint32_t index) {
  StreamSlot& slot = channel.streams[index];
  if (channel.slots[index].open.load(std::memory_order_relaxed) == 0) return;
  if (!try_own(slot)) return;
  if (!slot.ending.load(std::memory_order_relaxed)) close_owned_segment(channel, index);
  disown(slot);
}

void close_owned_segment(Channel& channel, uint32_t index) {
  if (may_mark(channel, index)) mark(channel, index);
}

void close_open_segments(Channel& channel) {
  close_each(channel, [](const StreamSlot&) { return true; });
}
void close_own_segments(Channel& channel) {
  close_each(channel, [](const StreamSlot& slot) {
    return slot.submitter.load(std::memory_order_relaxed) == thread_id();
  });
}

void snapshot_open(const Channel& channel, uint64_t* open) {
  for (uint32_t i = 0; i < slot_end(channel); ++i)
    open[i] = channel.slots[i].open.load(std::memory_order_acquire);
}

void settle_context(Channel& channel, uint64_t context, const uint64_t* open_before) {
  for (uint32_t i = 0; i < slot_end(channel); ++i) {
    StreamSlot& stream = channel.streams[i];
    if (!open_before[i] || stream.context.load(std::memory_order_relaxed) != context) continue;
    if (try_own(stream)) {
      tell_launches(channel, stream);
      disown(stream);
    }
    shm::Slot& slot = channel.slots[i];
    uint64_t open = slot.open.load(std::memory_order_relaxed);
    while (open && !slot.open.compare_exchange_weak(open, open - std::min(open, open_before[i]),
                                                    std::memory_order_release)) {
    }
  }
}

bool all_idle(const Channel& channel) {
  const uint32_t end = slot_end(channel);
  for (uint32_t i = 0; i < end; ++i) {
    if (is_unfinished(channel.slots[i])) return false;
  }
  return true;
}

}  // namespace tandem::shim
