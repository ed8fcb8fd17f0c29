// Calls that are not submissions but tell when work ends, in which order it runs, or that a stream
// or context goes away.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "capture.h"
#include "channel.h"
#include "session.h"
#include "shm_layout.h"
#include "slots.h"
#include "timing.h"

namespace tandem::shim {

// The caller is about to block: closes all open segments, so that their end will be seen.
void before_block(Channel& channel);
// The caller is about to query, which many do in a loop: closes only what it submitted itself.
void before_query(Channel& channel);

// What the host waits for, or queries.
struct WaitTarget {
  shm::SyncOf what = shm::SyncOf::kUnknown;
  uint64_t object = 0;          // the handle as the call named it
  uint64_t stream = 0;          // normalised; of kStream
  CUcontext context = nullptr;  // of kContext; null = the current one
};
inline WaitTarget of_stream(CUstream stream, bool per_thread) {
  return {shm::SyncOf::kStream, reinterpret_cast<uint64_t>(stream), normalise(stream, per_thread),
          nullptr};
}
inline WaitTarget of_event(CUevent event) {
  return {shm::SyncOf::kEvent, reinterpret_cast<uint64_t>(event), 0, nullptr};
}
inline WaitTarget of_context(CUcontext context) { return {shm::SyncOf::kContext, 0, 0, context}; }

// The caller returned from a wait that began at `since_ticks`, or learned that what it queried is
// done.
void after_wait(Channel& channel, const WaitTarget& target, uint64_t since_ticks, CUresult result);
void after_query(Channel& channel, const WaitTarget& target);

void record_order(Channel& channel, shm::RecordKind kind, uint64_t stream, uint64_t object);
// Recorded as if on the context's legacy stream; null: a context that has no number.
void record_context_order(Channel& channel, shm::RecordKind kind, CUcontext context,
                          uint64_t object);
void record_memory(Channel& channel, shm::RecordKind kind, uint64_t ticks, uint64_t address,
                   uint64_t bytes,
                   uint64_t stream = kNoStream);  // the latter where it happens in stream order

// This thread was held up.
void record_wait(Channel& channel, const Waited& waited);

void retire_stream(CUstream stream);

template <class Real>
CUresult observed_wait(const WaitTarget& target, Real real) {
  Channel* channel = managed_channel();
  if (!channel) return real();
  before_block(*channel);
  const uint64_t since = g_clock.ticks();
  const CUresult result = real();
  after_wait(*channel, target, since, result);
  return result;
}

template <class Real>
CUresult observed_query(const WaitTarget& target, Real real) {
  Channel* channel = managed_channel();
  if (!channel) return real();
  before_query(*channel);
  const CUresult result = real();
  if (result == CUDA_SUCCESS) after_query(*channel, target);
  return result;
}

// The work that a context had open when it was synchronised; it needs no marker any more.
struct OpenSnapshot {
  uint64_t open[shm::kSlotCount] = {};
  uint64_t context = 0;
};
void take_snapshot(Channel& channel, CUcontext context, OpenSnapshot* snapshot);  // null: current
void settle(Channel& channel, const OpenSnapshot& snapshot);

template <class Real>
CUresult observed_context_wait(CUcontext context, Real real) {
  Channel* channel = managed_channel();
  if (!channel) return real();
  before_block(*channel);
  OpenSnapshot snapshot;
  take_snapshot(*channel, context, &snapshot);
  const uint64_t since = g_clock.ticks();
  const CUresult result = real();
  if (result == CUDA_SUCCESS) settle(*channel, snapshot);
  after_wait(*channel, of_context(context), since, result);
  return result;
}

// Work captured into a graph has not happened, so it is not recorded, just as launches are not.
// That includes a call that itself makes the stream join a capture.
template <class Real>
CUresult ordered(shm::RecordKind kind, uint64_t stream, uint64_t object, Real real) {
  const CUresult result = real();
  Channel* channel = g_channel.load(std::memory_order_acquire);
  if (!channel || result != CUDA_SUCCESS) return result;
  if (any_capture() && stream != kLegacyStream && is_capturing(as_stream(stream))) return result;
  record_order(*channel, kind, stream, object);
  return result;
}

// The slots and timings of a context, or of a device's contexts, around its destruction: owned
// before, which keeps the helper out of them, and retired after.
struct Condemned {
  bool doomed[shm::kSlotCount] = {};
  bool owned[shm::kSlotCount] = {};
  uint64_t context = 0;
  int device = -1;  // or all contexts of it
  HeldTimings timings;
};
void condemn(Channel& channel, uint64_t context, int device, Condemned* condemned);
void bury(Channel& channel, const Condemned& condemned, bool is_gone);
bool primary_is_active(CUdevice device);

template <class Real>
CUresult destroying_context(CUcontext context, Real real) {
  Channel* channel = g_channel.load(std::memory_order_acquire);
  if (!channel) return real();
  Condemned condemned;
  condemn(*channel, reinterpret_cast<uint64_t>(context), -1, &condemned);
  const CUresult result = real();
  bury(*channel, condemned, result == CUDA_SUCCESS);
  return result;
}

// cuDevicePrimaryCtxReset and cuDevicePrimaryCtxRelease. Contexts of that device made by hand lose
// their slots too, and get new ones at their next submission. Not `may_destroy`: as far as the shim
// knows, there are other holders. Libraries release the context that way around each of their
// operations, so it must cost nothing.
template <class Real>
CUresult destroying_primary(CUdevice device, bool may_destroy, Real real) {
  Channel* channel = g_channel.load(std::memory_order_acquire);
  if (!channel) return real();
  Condemned condemned;
  if (may_destroy) condemn(*channel, 0, device, &condemned);
  const CUresult result = real();
  const bool is_gone = result == CUDA_SUCCESS && !primary_is_active(device);
  // Late, but better than never.
  if (is_gone && !may_destroy) condemn(*channel, 0, device, &condemned);
  bury(*channel, condemned, is_gone);
  return result;
}

}  // namespace tandem::shim
