#include "observe.h"

#include <algorithm>

#include "capture.h"
#include "context_numbers.h"
#include "driver.h"
#include "faults.h"
#include "markers.h"
#include "memory.h"
#include "presence.h"
#include "segments.h"
#include "slots.h"
#include "thread_state.h"
#include "timing.h"
#include "wire.h"

namespace tandem::shim {
namespace {

void begin(shm::RecordKind kind, uint64_t ticks, shm::Record* record) {
  *record = {};
  record->ticks = ticks;
  record->kind = static_cast<uint8_t>(kind);
  record->slot = kNoSlot;
  record->thread = thread_id();
}

shm::Record blank(shm::RecordKind kind) {
  shm::Record record;
  begin(kind, g_clock.ticks(), &record);
  return record;
}

// Fills in which stream the record is of.
void set_stream(Channel& channel, uint64_t stream, shm::Record* record) {
  record->stream = stream;
  const uint32_t index = slot_beside(channel, stream);
  if (index == kNoSlot) return;
  const StreamSlot& slot = channel.streams[index];
  record->slot = static_cast<uint16_t>(index);
  const uint64_t common = slot.common.load(std::memory_order_relaxed);
  record->flags |= static_cast<uint8_t>(common);
  record->value |= common & kContextNumber;
}

void set_context(const Channel& channel, uint64_t context, shm::Record* record) {
  if (channel.features & wire::kFeatureOrder)
    record->value |= uint64_t{context_number(context)} << 32;
}

// Fills in what the process holds on its devices, as counted.
void set_held(shm::Record* record) {
  const uint64_t held = memory::used_bytes();
  record->grid_blocks = static_cast<uint32_t>(held);
  record->block_threads = static_cast<uint32_t>(held >> 32);
}

shm::Record sync(Channel& channel, const WaitTarget& target) {
  shm::Record record = blank(shm::RecordKind::kSync);
  record.object = target.object;
  record.value = static_cast<uint64_t>(target.what);
  set_held(&record);
  if (target.what == shm::SyncOf::kStream) set_stream(channel, target.stream, &record);
  if (target.what == shm::SyncOf::kContext) {
    set_context(channel,
                target.context ? reinterpret_cast<uint64_t>(target.context) : current_context(),
                &record);
  }
  return record;
}

}  // namespace

void before_block(Channel& channel) { close_open_segments(channel); }
void before_query(Channel& channel) { close_own_segments(channel); }

void after_wait(Channel& channel, const WaitTarget& target, uint64_t since_ticks, CUresult result) {
  const uint64_t ticks = g_clock.ticks();
  shm::Record record = sync(channel, target);
  record.ticks = ticks;
  record.duration_ns = g_clock.ns(ticks) - g_clock.ns(since_ticks);
  if (result != CUDA_SUCCESS) record.value = 0;  // nothing is known to have ended
  write_record(channel, record);
  if (!channel.observe) show_idle_if_so(channel, g_clock.ns(ticks));
}

// A query repeated in a loop is recorded once, until the thread has something else to report.
void after_query(Channel& channel, const WaitTarget& target) {
  ThreadState& thread = g_thread;
  const bool told =
      thread.queried == target.object + 1 && thread.ring.written() == thread.queried_at;
  if ((channel.features & wire::kFeatureOrder) && !told) {
    shm::Record record = sync(channel, target);
    record.flags |= shm::kRecordQueried;
    write_record(channel, record);
    thread.queried = target.object + 1;
    thread.queried_at = thread.ring.written();
  }
  if (!channel.observe) show_idle_if_so(channel, g_clock.now_ns());
}

void record_order(Channel& channel, shm::RecordKind kind, uint64_t stream, uint64_t object) {
  if (planted(Fault::kForgetRecord) && kind == shm::RecordKind::kEventRecord) return;
  shm::Record record = blank(kind);
  record.object = object;
  set_stream(channel, stream, &record);
  if (kind != shm::RecordKind::kEventRecord && record.slot != kNoSlot) {
    channel.streams[record.slot].last_wait_ns.store(g_clock.ns(record.ticks),
                                                    std::memory_order_relaxed);
  }
  write_record(channel, record);
}

void record_context_order(Channel& channel, shm::RecordKind kind, CUcontext context,
                          uint64_t object) {
  shm::Record record = blank(kind);
  record.flags = shm::kRecordScattered;
  record.stream = kLegacyStream;
  record.object = object;
  set_context(channel, reinterpret_cast<uint64_t>(context), &record);
  write_record(channel, record);
}

void record_memory(Channel& channel, shm::RecordKind kind, uint64_t ticks, uint64_t address,
                   uint64_t bytes, uint64_t stream) {
  fill_record(channel, [&](shm::Record& record) {
    begin(kind, ticks, &record);
    if (stream != kNoStream) {
      record.flags = shm::kRecordInOrder;
      set_stream(channel, stream, &record);
    }
    record.object = address;
    record.bytes = bytes;
    set_held(&record);
  });
}

void record_wait(Channel& channel, const Waited& waited) {
  shm::Record record = blank(shm::RecordKind::kWait);
  record.duration_ns = waited.ns;
  record.value = static_cast<uint64_t>(waited.reason);
  write_record(channel, record);
}

void retire_stream(CUstream stream) {
  if (planted(Fault::kLeakSlot)) return;
  Channel* channel = g_channel.load(std::memory_order_acquire);
  const auto handle = reinterpret_cast<uint64_t>(stream);
  if (!channel || is_default_stream(handle)) return;
  for (uint32_t i = 0; i < slot_end(*channel); ++i) {
    StreamSlot& slot = channel->streams[i];
    if (slot.stream.load(std::memory_order_acquire) != handle) continue;
    const bool owned = own_to_end(slot);
    // The stream's work outlives it.
    if (owned && !channel->observe) close_or_settle_owned(*channel, i);
    retire(*channel, i);
    slot.ending.store(false, std::memory_order_relaxed);
    if (owned) disown(slot);
  }
}

void take_snapshot(Channel& channel, CUcontext context, OpenSnapshot* snapshot) {
  snapshot->context = context ? reinterpret_cast<uint64_t>(context) : current_context();
  snapshot_open(channel, snapshot->open);
}

void settle(Channel& channel, const OpenSnapshot& snapshot) {
  settle_context(channel, snapshot.context, snapshot.open);
}

void condemn(Channel& channel, uint64_t context, int device, Condemned* condemned) {
  condemned->timings = hold_timings(context, device);
  for (uint32_t i = 0; i < slot_end(channel); ++i) {
    StreamSlot& slot = channel.streams[i];
    if (!goes_with(context, device, slot) ||
        slot.stream.load(std::memory_order_acquire) == kNoStream) {
      continue;
    }
    condemned->owned[i] = own_to_end(slot);
    condemned->doomed[i] = true;
  }
  condemned->context = context, condemned->device = device;
  let_markers_pass(channel, context, device);
}

void bury(Channel& channel, const Condemned& condemned, bool is_gone) {
  let_timings_go(condemned.timings, is_gone);
  for (uint32_t i = 0; i < shm::kSlotCount; ++i) {
    if (!condemned.doomed[i]) continue;
    StreamSlot& slot = channel.streams[i];
    if (is_gone) {
      shm::Slot& shared = channel.slots[i];
      // Nothing in a destroyed context runs, and none of its markers will arrive.
      shared.open.store(0, std::memory_order_relaxed);
      shared.done.store(std::max(shared.done.load(std::memory_order_relaxed),
                                 shared.issued.load(std::memory_order_relaxed)),
                        std::memory_order_release);
      if (condemned.owned[i]) forget_events(slot);
      const uint64_t context = slot.context.load(std::memory_order_relaxed);
      note_context_destroyed(context);
      forget_context_number(context);
      retire(channel, i);
    } else {
      slot.ending.store(false, std::memory_order_relaxed);
    }
    if (condemned.owned[i]) disown(slot);
  }
  if (is_gone) forget_registration(channel, condemned.context, condemned.device);
  else go_on_marking(channel, condemned.context, condemned.device);
}

bool primary_is_active(CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  return g_driver.cuDevicePrimaryCtxGetState &&
         g_driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS &&
         active != 0;
}

}  // namespace tandem::shim
