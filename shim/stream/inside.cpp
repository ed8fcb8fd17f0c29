#include "inside.h"

#include <sched.h>

#include <algorithm>

#include "capture.h"
#include "slots.h"
#include "wait.h"

namespace tandem::shim {
namespace {

// A call that makes progress takes some microseconds. On the virtual clock, which stands still
// meanwhile, there is time to allow for a thread that is preempted.
constexpr uint64_t kWatchNs = 20'000, kVirtualWatchNs = 2'000'000;

bool is_anothers(uint64_t call) { return call != 0 && call >> 32 != thread_id(); }

uint64_t context_of(const StreamSlot& slot) { return slot.context.load(std::memory_order_relaxed); }

bool gets_on(const StreamSlot& slot, uint64_t call) {
  const uint64_t end_ns = monotonic_ns() + (g_clock.is_virtual() ? kVirtualWatchNs : kWatchNs);
  while (slot.inside.load(std::memory_order_relaxed) == call) {
    if (monotonic_ns() > end_ns) return false;
    if (g_clock.is_virtual()) sched_yield();
    else cpu_pause();
  }
  return true;
}

}  // namespace

StreamSlot* Inside::slot_of_handle(CUstream handle, bool per_thread) {
  Channel* const channel = g_channel.load(std::memory_order_acquire);
  if (!channel || any_capture()) return nullptr;  // what is captured waits for nothing
  const uint32_t slot = find_slot(*channel, normalise(handle, per_thread));
  return slot == kNoSlot ? nullptr : &channel->streams[slot];
}

bool others_are_inside(const Channel& channel, uint64_t context) {
  return OthersInside(channel).are_in(context);
}

bool is_anyone_kept(const Channel& channel, uint64_t context) {
  for (uint32_t i = 0; i < slot_end(channel); ++i) {
    const StreamSlot& slot = channel.streams[i];
    const uint64_t call = slot.inside.load(std::memory_order_relaxed);
    if (is_anothers(call) && context_of(slot) == context && !gets_on(slot, call)) return true;
  }
  return false;
}

OthersInside::OthersInside(const Channel& channel) {
  for (uint32_t i = 0; i < slot_end(channel); ++i) {
    if (!is_anothers(channel.streams[i].inside.load(std::memory_order_relaxed))) continue;
    const uint64_t context = context_of(channel.streams[i]);
    if (are_in(context)) continue;
    if (count_ < kMost) contexts_[count_++] = context;
    else are_many_ = true;
  }
}

bool OthersInside::are_in(uint64_t context) const {
  return are_many_ || std::find(contexts_, contexts_ + count_, context) != contexts_ + count_;
}

}  // namespace tandem::shim
