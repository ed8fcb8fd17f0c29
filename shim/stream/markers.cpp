#include "markers.h"

#include <cstddef>

#include "driver.h"
#include "slots.h"
#include "streams.h"

namespace tandem::shim {
namespace {

constexpr uint32_t kNotTried = 0, kTrying = 1, kRegistered = 2, kFailed = 3;
constexpr size_t kSlotPagesBytes = shm::kSlotCount * sizeof(shm::Slot);

// Only the slot pages: the rings need not be pinned.
bool register_pages(Channel& channel) {
  if (!g_driver.cuMemHostRegister_v2 || !g_driver.cuMemHostGetDevicePointer_v2) return false;
  CUcontext context = nullptr;
  if (!g_driver.cuCtxGetCurrent || g_driver.cuCtxGetCurrent(&context) != CUDA_SUCCESS) return false;
  const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
  const CUresult result = g_driver.cuMemHostRegister_v2(channel.slots, kSlotPagesBytes, flags);
  // Already: by a green context that is gone, whose registrations are those of its primary context.
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) return false;
  CUdeviceptr base = 0;
  if (g_driver.cuMemHostGetDevicePointer_v2(&base, channel.slots, 0) != CUDA_SUCCESS) return false;
  channel.registered_base.store(base, std::memory_order_relaxed);
  channel.registered_in.store(reinterpret_cast<uint64_t>(context), std::memory_order_relaxed);
  return true;
}

// Once a channel, by whoever needs it first; the others meanwhile do with events.
bool have_pages(Channel& channel) {
  uint32_t state = kNotTried;
  if (channel.registered.compare_exchange_strong(state, kTrying, std::memory_order_acquire)) {
    state = register_pages(channel) ? kRegistered : kFailed;
    channel.registered.store(state, std::memory_order_release);  // pairs with the acquire above
  }
  return state == kRegistered;
}

bool device_takes_memory_operations(uint32_t device) {
  int yes = 0;
  return g_driver.cuDeviceGetAttribute && g_driver.cuStreamWriteValue64_v2 &&
         g_driver.cuDeviceGetAttribute(&yes, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
                                       static_cast<CUdevice>(device)) == CUDA_SUCCESS &&
         yes != 0;
}

void decide(Channel& channel, uint32_t index) {
  StreamSlot& slot = channel.streams[index];
  const uint32_t device = slot.device.load(std::memory_order_relaxed);
  if (device_takes_memory_operations(device) && have_pages(channel)) {
    slot.done_address = channel.registered_base.load(std::memory_order_relaxed) +
                        index * sizeof(shm::Slot) + offsetof(shm::Slot, done);
    slot.mark_by = MarkBy::kMemoryOperation;
  } else {
    slot.mark_by = MarkBy::kEvent;
  }
}

bool put_event(StreamSlot& slot, CUstream stream, uint64_t value) {
  for (uint32_t i = 0; i < kPendingEvents; ++i) {
    if (slot.event_value[i]) continue;
    if (!slot.events[i] &&
        g_driver.cuEventCreate(&slot.events[i], CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
      slot.events[i] = nullptr;
      return false;
    }
    if (g_driver.cuEventRecord(slot.events[i], stream) != CUDA_SUCCESS) return false;
    slot.event_value[i] = value;
    return true;
  }
  return false;  // four outstanding: the helper comes back when one has passed
}

}  // namespace

bool put_marker(Channel& channel, uint32_t index, uint64_t value) {
  StreamSlot& slot = channel.streams[index];
  if (slot.mark_by == MarkBy::kUndecided) decide(channel, index);
  const partition::Stream held(as_stream(slot.stream.load(std::memory_order_relaxed)),
                               partition::How::kHoldIfFree);
  if (!held.is_free()) return false;  // whoever adds to it may be inside the driver for long
  const CUstream stream = held.real();
  if (slot.mark_by == MarkBy::kMemoryOperation) {
    if (g_driver.cuStreamWriteValue64_v2(stream, slot.done_address, value,
                                         CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS) {
      return true;
    }
    slot.mark_by = MarkBy::kEvent;
  }
  return put_event(slot, stream, value);
}

bool poll_events(Channel& channel, uint32_t index) {
  StreamSlot& slot = channel.streams[index];
  shm::Slot& shared = channel.slots[index];
  bool outstanding = false;
  for (uint32_t i = 0; i < kPendingEvents; ++i) {
    if (!slot.event_value[i]) continue;
    if (g_driver.cuEventQuery(slot.events[i]) == CUDA_ERROR_NOT_READY) {
      outstanding = true;
      continue;
    }
    // Passed, or its context failed: either way nothing of it is running.
    if (shared.done.load(std::memory_order_relaxed) < slot.event_value[i])
      shared.done.store(slot.event_value[i], std::memory_order_release);
    slot.event_value[i] = 0;
  }
  return outstanding;
}

void forget_events(StreamSlot& slot) {
  for (uint32_t i = 0; i < kPendingEvents; ++i) {
    slot.events[i] = nullptr;
    slot.event_value[i] = 0;
  }
}

void forget_registration(Channel& channel, uint64_t context) {
  if (channel.registered_in.load(std::memory_order_relaxed) != context) return;
  channel.registered_in.store(0, std::memory_order_relaxed);
  channel.registered.store(kNotTried, std::memory_order_release);
  for (uint32_t i = 0; i < slot_end(channel); ++i) {
    StreamSlot& slot = channel.streams[i];
    if (!own_soon(slot)) continue;
    if (slot.mark_by == MarkBy::kMemoryOperation) slot.mark_by = MarkBy::kUndecided;
    disown(slot);
  }
}

}  // namespace tandem::shim
