#include "markers.h"

#include <cstddef>

#include "berths.h"
#include "capture.h"
#include "driver.h"
#include "inside.h"
#include "session.h"
#include "slots.h"
#include "streams.h"

namespace tandem::shim {
namespace {

// No longer than this, because the work ahead of the markers may wait for something that the
// program does next.
constexpr uint64_t kPassNs = 1'000'000'000, kPassSleepNs = 50'000;
constexpr size_t kSlotPagesBytes = shm::kSlotCount * sizeof(shm::Slot);

// Registers only the slot pages: the rings need not be pinned.
bool try_to_register(Channel& channel) {
  if (!g_driver.cuMemHostRegister_v2 || !g_driver.cuMemHostGetDevicePointer_v2) return false;
  CUcontext context = nullptr;
  if (!g_driver.cuCtxGetCurrent || g_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS) return false;
  const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  const CUresult result = g_driver.cuMemHostRegister_v2(channel.slots, kSlotPagesBytes, flags);
  // The pages are registered already: by a green context that is gone, whose registrations belong
  // to its primary context. Or the registration is of what was mapped here before, which is not
  // what the daemon looks at now.
  const bool already = result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED &&
                       channel.was_registered.load(std::memory_order_relaxed);
  if (result != CUDA_SUCCESS && !already) return false;
  CUdeviceptr base = 0;
  if (g_driver.cuMemHostGetDevicePointer_v2(&base, channel.slots, 0) != CUDA_SUCCESS) return false;
  CUdevice device = -1;
  if (g_driver.cuCtxGetDevice) g_driver.cuCtxGetDevice(&device);
  channel.registered_on.store(device, std::memory_order_relaxed);
  channel.registered_base.store(base, std::memory_order_relaxed);
  channel.registered_in.store(reinterpret_cast<uint64_t>(context), std::memory_order_relaxed);
  channel.was_registered.store(true, std::memory_order_relaxed);
  return true;
}

// Once per channel, by the first thread that needs it, unless its device does without; other
// threads use events meanwhile.
bool have_pages(Channel& channel, bool wanted) {
  uint32_t state = kNotTried;
  if (channel.registered.compare_exchange_strong(state, kTrying, std::memory_order_acquire)) {
    state = wanted && try_to_register(channel) ? kRegistered : kFailed;
    channel.registered.store(state, std::memory_order_release);  // pairs with the acquire above
  }
  return state == kRegistered;
}

// This channel and earlier ones, if their pages are registered there.
template <class Do>
void each_registered_in(Channel& channel, uint64_t context, int device, Do act) {
  const auto if_there = [&](Channel& own) {
    const uint64_t in = own.registered_in.load(std::memory_order_relaxed);
    const int on = own.registered_on.load(std::memory_order_relaxed);
    if (in != 0 && goes_with(context, device, in, static_cast<uint32_t>(on))) act(own);
  };
  if_there(channel);
  berths::each_channel([&](Channel& other) {
    if (&other != &channel) if_there(other);
  });
}

// Makes the slot decide anew how to mark, if its markers used the registration. False: they did
// not, or somebody does not let go of the slot.
bool undecide(StreamSlot& slot) {
  if (!own_soon(slot)) return false;
  const bool undecided = slot.mark_by == MarkBy::kMemoryOperation;
  if (undecided) slot.mark_by = MarkBy::kUndecided;
  disown(slot);
  return undecided;
}

// Waits for markers of streams that stay, for a second at most.
void let_pass(Channel& channel, uint64_t context, int device) {
  bool passing[shm::kSlotCount] = {};
  for (uint32_t i = 0; i < slot_end(channel); ++i) {
    StreamSlot& slot = channel.streams[i];
    passing[i] = !goes_with(context, device, slot) && undecide(slot);
  }
  const uint64_t give_up_ns = g_clock.now_ns() + kPassNs;
  for (uint32_t i = 0; i < slot_end(channel); ++i) {
    const shm::Slot& slot = channel.slots[i];
    while (passing[i] && slot.done.load(std::memory_order_acquire) <
                             slot.issued.load(std::memory_order_relaxed)) {
      const uint64_t now_ns = g_clock.now_ns();
      if (now_ns > give_up_ns) return;
      g_clock.sleep_until_ns(now_ns + kPassSleepNs);
    }
  }
}

bool device_takes_memory_operations(uint32_t device) {
  int yes = 0;
  return g_driver.cuDeviceGetAttribute && g_driver.cuStreamWriteValue64_v2 &&
         g_driver.cuDeviceGetAttribute(&yes, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
                                       static_cast<CUdevice>(device)) == CUDA_SUCCESS &&
         yes != 0;
}

bool wants_pages(uint32_t device) {
  return !g_settings.mark_by_events && device_takes_memory_operations(device);
}

void decide(Channel& channel, uint32_t index) {
  StreamSlot& slot = channel.streams[index];
  if (wants_pages(slot.device.load(std::memory_order_relaxed)) && have_pages(channel, true)) {
    slot.done_address = channel.registered_base.load(std::memory_order_relaxed) +
                        index * sizeof(shm::Slot) + offsetof(shm::Slot, done);
    slot.mark_by = MarkBy::kMemoryOperation;
  } else {
    slot.mark_by = MarkBy::kEvent;
  }
}

// There is no such stream: it was destroyed out of the shim's sight.
bool is_gone(CUresult result) {
  return result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

// Whether the pages still belong to that attachment: the driver may have kept this thread for long.
bool is_still(const Channel& channel, uint32_t attachment) {
  return channel.attachment.load(std::memory_order_relaxed) == attachment;
}

bool put_event(const Channel& channel, StreamSlot& slot, CUstream stream, uint64_t value) {
  const uint32_t attachment = channel.attachment.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < kPendingEvents; ++i) {
    if (slot.event_value[i]) continue;
    if (!slot.events[i] &&
        g_driver.cuEventCreate(&slot.events[i], CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
      slot.events[i] = nullptr;
      return false;
    }
    if (g_driver.cuEventRecord(slot.events[i], stream) != CUDA_SUCCESS) return false;
    if (!is_still(channel, attachment)) return false;
    slot.event_value[i] = value;
    return true;
  }
  return false;  // four outstanding: the helper comes back when one has passed
}

}  // namespace

void register_pages(Channel& channel, uint32_t index) {
  if (index == kNoSlot || channel.observe || any_capture() || channel.gate.lost() ||
      current_context() == 0)
    return;
  have_pages(channel, wants_pages(channel.streams[index].device.load(std::memory_order_relaxed)));
}

bool put_marker(Channel& channel, uint32_t index, uint64_t value) {
  if (channel.gate.lost()) return false;
  StreamSlot& slot = channel.streams[index];
  if (slot.mark_by == MarkBy::kUndecided) decide(channel, index);
  // A memory operation between two launches, the second of which may begin early, would prevent the
  // overlap; an event does not (an H200: docs/driver-facts.md, part `markers`).
  if (slot.programmatic.load(std::memory_order_relaxed)) slot.mark_by = MarkBy::kEvent;
  const partition::Stream held(as_stream(slot.stream.load(std::memory_order_relaxed)),
                               partition::How::kHoldIfFree);
  if (!held.is_free()) return false;  // whoever adds to it may be inside the driver for long
  const CUstream stream = held.real();
  const Inside inside(&channel, index);
  const uint32_t attachment = channel.attachment.load(std::memory_order_relaxed);
  if (slot.mark_by == MarkBy::kMemoryOperation) {
    const CUresult result = g_driver.cuStreamWriteValue64_v2(stream, slot.done_address, value,
                                                             CU_STREAM_WRITE_VALUE_DEFAULT);
    if (!is_still(channel, attachment)) return false;
    if (result == CUDA_SUCCESS) return true;
    if (is_gone(result)) return retire(channel, index), false;
    slot.mark_by = MarkBy::kEvent;
  }
  return put_event(channel, slot, stream, value);
}

bool poll_events(Channel& channel, uint32_t index) {
  StreamSlot& slot = channel.streams[index];
  shm::Slot& shared = channel.slots[index];
  bool outstanding = false;
  make_current(slot.home.load(std::memory_order_relaxed));
  for (uint32_t i = 0; i < kPendingEvents; ++i) {
    if (!slot.event_value[i]) continue;
    if (g_driver.cuEventQuery(slot.events[i]) == CUDA_ERROR_NOT_READY) {
      outstanding = true;
      continue;
    }
    // Passed, or its context failed: either way none of the work is running.
    if (shared.done.load(std::memory_order_relaxed) < slot.event_value[i])
      shared.done.store(slot.event_value[i], std::memory_order_release);
    slot.event_value[i] = 0;
  }
  return outstanding;
}

void reuse_events(StreamSlot& slot, bool same_context) {
  for (uint32_t i = 0; i < kPendingEvents; ++i) {
    if (slot.events[i] && !same_context && g_driver.cuEventDestroy_v2)
      g_driver.cuEventDestroy_v2(slot.events[i]);
    if (!same_context) slot.events[i] = nullptr;
    slot.event_value[i] = 0;
  }
}

void forget_events(StreamSlot& slot) {
  for (uint32_t i = 0; i < kPendingEvents; ++i) {
    slot.events[i] = nullptr;
    slot.event_value[i] = 0;
  }
}

void let_markers_pass(Channel& channel, uint64_t context, int device) {
  each_registered_in(channel, context, device, [&](Channel& own) {
    uint32_t state = kRegistered;  // streams that decide from now on use events
    if (!own.registered.compare_exchange_strong(state, kSuspended, std::memory_order_acq_rel))
      return;
    let_pass(own, context, device);
  });
}

void go_on_marking(Channel& channel, uint64_t context, int device) {
  each_registered_in(channel, context, device, [](Channel& own) {
    uint32_t state = kSuspended;
    own.registered.compare_exchange_strong(state, kRegistered, std::memory_order_release);
  });
}

void forget_registration(Channel& channel, uint64_t context, int device) {
  each_registered_in(channel, context, device, [&](Channel& own) {
    own.registered_in.store(0, std::memory_order_relaxed);
    own.registered_on.store(-1, std::memory_order_relaxed);
    own.registered.store(kNotTried, std::memory_order_release);  // it can be registered anew
    if (&own != &channel) return;
    for (uint32_t i = 0; i < slot_end(own); ++i) undecide(own.streams[i]);
  });
}

}  // namespace tandem::shim
