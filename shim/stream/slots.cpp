#include "slots.h"

#include <cstddef>

#include "context_numbers.h"
#include "driver.h"
#include "markers.h"
#include "relaxed.h"
#include "thread_state.h"
#include "ties.h"
#include "wait.h"
#include "wire.h"

namespace tandem::shim {
namespace {

// The owner may be inside the driver with the stream, where a full queue holds it until the GPU
// makes progress. The caller's own driver call would then wait there as well.
constexpr uint64_t kOwnSoonNs = 1'000'000'000;
constexpr uint32_t kSpins = 200;
constexpr uint64_t kSleepNs = 20'000;

bool fits(const StreamSlot& slot, uint64_t stream, uint64_t context) {
  if (slot.stream.load(std::memory_order_acquire) != stream) return false;
  if (!is_default_stream(stream)) return true;  // a handle names one stream of the process
  if (slot.context.load(std::memory_order_relaxed) != context) return false;
  return stream != kPerThreadStream || slot.thread.load(std::memory_order_relaxed) == thread_id();
}

bool is_finished(const shm::Slot& slot) {
  return slot.open.load(std::memory_order_relaxed) == 0 &&
         slot.issued.load(std::memory_order_relaxed) <= slot.done.load(std::memory_order_acquire);
}

uint32_t find(const Channel& channel, uint64_t stream, uint64_t context) {
  ThreadState& thread = g_thread;
  const uint32_t attachment = channel.attachment.load(std::memory_order_relaxed);
  if (thread.found_in == attachment && fits(channel.streams[thread.found], stream, context))
    return thread.found;
  for (uint32_t i = 0; i < slot_end(channel); ++i) {
    if (!fits(channel.streams[i], stream, context)) continue;
    thread.found_in = attachment;
    thread.found = i;
    return i;
  }
  return kNoSlot;
}

// Takes a slot that is free, or retired with nothing left to finish; the caller then owns it.
uint32_t take(Channel& channel) {
  for (uint32_t i = 0; i < shm::kSlotCount; ++i) {
    StreamSlot& slot = channel.streams[i];
    uint64_t held = slot.stream.load(std::memory_order_acquire);
    const bool free =
        held == kNoStream || (held == kStreamRetired && is_finished(channel.slots[i]));
    // Owned: a thread is still inside the driver with the last stream.
    if (!free || !try_own(slot)) continue;
    if (slot.stream.compare_exchange_strong(held, kStreamMaking, std::memory_order_acquire))
      return i;
    disown(slot);
  }
  return kNoSlot;
}

void raise_end(Channel& channel, uint32_t end) {
  uint32_t held = channel.gate.slot_end.load(std::memory_order_relaxed);
  while (held < end &&
         !channel.gate.slot_end.compare_exchange_weak(held, end, std::memory_order_release)) {
  }
}

// Sets what records of the stream have in common, if the daemon wants to know.
void describe_records(const Channel& channel, StreamSlot& slot, bool blocking) {
  const uint64_t context = slot.context.load(std::memory_order_relaxed);
  const bool tell = channel.features & wire::kFeatureOrder;
  const uint64_t number = tell ? context_number(context) : 0;
  const uint64_t flags = blocking ? 0 : shm::kRecordNonBlocking;
  slot.common.store(number << 32 | flags, std::memory_order_relaxed);
}

void describe(const Channel& channel, StreamSlot& slot, uint64_t stream, uint64_t context) {
  CUdevice device = 0;
  unsigned flags = 0;
  if (!is_default_stream(stream) && g_driver.cuStreamGetCtx) {
    CUcontext owner = nullptr;
    if (g_driver.cuStreamGetCtx(as_stream(stream), &owner) == CUDA_SUCCESS && owner)
      context = reinterpret_cast<uint64_t>(owner);
  }
  CUgreenCtx green = nullptr;
  CUcontext primary = nullptr, home_again = nullptr;
  if (g_driver.cuStreamGetCtx_v2 && (!is_default_stream(stream) || context))
    g_driver.cuStreamGetCtx_v2(as_stream(stream), &primary, &green);
  // The stream may belong to a context other than the current one. A green context may be current
  // to one thread only, its primary one to any.
  const auto home = primary ? primary : reinterpret_cast<CUcontext>(context);
  const bool at_home = g_driver.cuCtxPushCurrent_v2 && g_driver.cuCtxPopCurrent_v2 &&
                       g_driver.cuCtxPushCurrent_v2(home) == CUDA_SUCCESS;
  if (g_driver.cuCtxGetDevice && g_driver.cuCtxGetDevice(&device) == CUDA_SUCCESS)
    ties::use_device(device);
  if (at_home) g_driver.cuCtxPopCurrent_v2(&home_again);
  if (!is_default_stream(stream) && g_driver.cuStreamGetFlags)
    g_driver.cuStreamGetFlags(as_stream(stream), &flags);
  slot.context.store(context, std::memory_order_relaxed);
  slot.home.store(reinterpret_cast<uint64_t>(home), std::memory_order_relaxed);
  slot.device.store(static_cast<uint32_t>(device), std::memory_order_relaxed);
  const bool blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
  slot.blocking.store(blocking, std::memory_order_relaxed);
  describe_records(channel, slot, blocking);
  slot.green.store(green != nullptr, std::memory_order_relaxed);
  slot.programmatic.store(false, std::memory_order_relaxed);
  slot.thread.store(stream == kPerThreadStream ? thread_id() : 0, std::memory_order_relaxed);
}

// An invalid handle gets no slot: the driver refuses the work, and nothing would ever retire the
// slot.
bool is_none(uint64_t stream) {
  if (is_default_stream(stream) || !g_driver.cuStreamGetCtx) return false;
  CUcontext owner = nullptr;
  return g_driver.cuStreamGetCtx(as_stream(stream), &owner) == CUDA_ERROR_INVALID_HANDLE;
}

uint32_t make(Channel& channel, uint64_t stream, uint64_t context) {
  const RelaxedCapture relaxed;
  if (is_none(stream)) return kNoSlot;
  const uint32_t index = take(channel);
  if (index == kNoSlot) {
    channel.has_unslotted.store(true, std::memory_order_relaxed);
    return kNoSlot;
  }
  if (stream == kPerThreadStream) watch_thread_end();
  StreamSlot& slot = channel.streams[index];
  const uint64_t previous_context = slot.context.load(std::memory_order_relaxed);
  describe(channel, slot, stream, context);
  slot.last_wait_ns.store(0, std::memory_order_relaxed);
  slot.mark_by = MarkBy::kUndecided;
  reuse_events(slot, slot.context.load(std::memory_order_relaxed) == previous_context);
  shm::Slot& shared = channel.slots[index];
  shared.stream.store(stream, std::memory_order_relaxed);
  shared.generation.fetch_add(1, std::memory_order_relaxed);
  shared.open.store(0, std::memory_order_relaxed);
  shared.open_est_ns.store(0, std::memory_order_relaxed);
  shared.state.store(static_cast<uint32_t>(shm::SlotState::kLive), std::memory_order_release);
  slot.ending.store(false, std::memory_order_relaxed);
  slot.stream.store(stream, std::memory_order_release);  // pairs with the acquire in fits()
  disown(slot);
  raise_end(channel, index + 1);
  return index;
}

uint32_t find_or_make(Channel& channel, uint64_t stream, uint64_t context) {
  const uint32_t index = find(channel, stream, context);
  return index == kNoSlot ? make(channel, stream, context) : index;
}

}  // namespace

void make_current(uint64_t context) {
  if (g_driver.cuCtxSetCurrent) g_driver.cuCtxSetCurrent(reinterpret_cast<CUcontext>(context));
}

uint64_t current_context() {
  CUcontext context = nullptr;
  if (!g_driver.cuCtxGetCurrent || g_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS) return 0;
  return reinterpret_cast<uint64_t>(context);
}

uint32_t slot_end(const Channel& channel) {
  return channel.gate.slot_end.load(std::memory_order_acquire);
}

bool is_live(const StreamSlot& slot) {
  return slot.stream.load(std::memory_order_acquire) < kStreamRetired;
}

uint32_t look_up_slot(Channel& channel, uint64_t stream) {
  ThreadState& thread = g_thread;
  const uint32_t attachment = channel.attachment.load(std::memory_order_relaxed);
  const uint64_t context = is_default_stream(stream) ? current_context() : 0;
  if (thread.attachment == attachment && thread.stream == stream && thread.context == context &&
      thread.slot != kNoSlot &&
      channel.streams[thread.slot].stream.load(std::memory_order_acquire) == stream) {
    return thread.slot;
  }
  if (is_default_stream(stream) && !context) return kNoSlot;
  const uint32_t index = find_or_make(channel, stream, context);
  thread.attachment = attachment;
  thread.stream = stream;
  thread.context = context;
  thread.slot = index;
  return index;
}

uint32_t find_slot(const Channel& channel, uint64_t stream) {
  return find(channel, stream, is_default_stream(stream) ? current_context() : 0);
}

uint32_t slot_beside(Channel& channel, uint64_t stream) {
  const uint64_t context = is_default_stream(stream) ? current_context() : 0;
  if (is_default_stream(stream) && !context) return kNoSlot;
  return find_or_make(channel, stream, context);
}

bool try_own(StreamSlot& slot) {
  // Acquire: makes visible what the previous owner left; pairs with the release in disown.
  return !slot.busy.load(std::memory_order_relaxed) &&
         !slot.busy.exchange(true, std::memory_order_acquire);
}

void disown(StreamSlot& slot) { slot.busy.store(false, std::memory_order_release); }

bool own_soon(StreamSlot& slot) {
  if (try_own(slot)) return true;  // nearly always
  const uint64_t give_up_ns = g_clock.now_ns() + kOwnSoonNs;
  for (uint32_t spins = 0; !try_own(slot); ++spins) {
    const uint64_t now_ns = g_clock.now_ns();
    if (now_ns > give_up_ns) return false;
    if (spins < kSpins) cpu_pause();
    else g_clock.sleep_until_ns(now_ns + kSleepNs);
  }
  return true;
}

bool own_to_end(StreamSlot& slot) {
  slot.ending.store(true, std::memory_order_relaxed);
  return own_soon(slot);
}

OwnedStream::OwnedStream(Channel* channel, uint64_t stream) : channel_(channel) {
  if (!channel) return;
  for (uint32_t i = 0; i < slot_end(*channel); ++i) {
    StreamSlot& slot = channel->streams[i];
    const bool others =
        stream == kPerThreadStream && slot.thread.load(std::memory_order_relaxed) != thread_id();
    if (slot.stream.load(std::memory_order_acquire) != stream || others) continue;
    if (own_soon(slot)) slot_ = i;
    return;
  }
}

OwnedStream::~OwnedStream() {
  if (slot_ != kNoSlot) disown(channel_->streams[slot_]);
}

OwnedLegacyStreams::OwnedLegacyStreams(Channel* channel, uint32_t owned) : channel_(channel) {
  if (!channel) return;
  for (uint32_t i = 0; i < slot_end(*channel); ++i) {
    StreamSlot& slot = channel->streams[i];
    if (i != owned && slot.stream.load(std::memory_order_acquire) == kLegacyStream)
      owned_[i] = own_soon(slot);
  }
}

OwnedLegacyStreams::~OwnedLegacyStreams() {
  if (!channel_) return;
  for (uint32_t i = 0; i < shm::kSlotCount; ++i) {
    if (owned_[i]) disown(channel_->streams[i]);
  }
}

void retire(Channel& channel, uint32_t index) {
  StreamSlot& slot = channel.streams[index];
  channel.slots[index].state.store(static_cast<uint32_t>(shm::SlotState::kRetired),
                                   std::memory_order_release);
  slot.stream.store(kStreamRetired, std::memory_order_release);
}

void retire_slots_of_thread(Channel& channel) {
  for (uint32_t i = 0; i < slot_end(channel); ++i) {
    StreamSlot& slot = channel.streams[i];
    if (slot.stream.load(std::memory_order_acquire) != kPerThreadStream ||
        slot.thread.load(std::memory_order_relaxed) != thread_id() || !own_soon(slot)) {
      continue;
    }
    retire(channel, i);
    disown(slot);
  }
}

}  // namespace tandem::shim
