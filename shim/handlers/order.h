// Waits, queries, events and everything else that orders streams.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>
#include <type_traits>

#include "capture.h"
#include "driver.h"
#include "observe.h"
#include "pool_rows.h"
#include "slots.h"
#include "streams.h"

namespace tandem::shim::handlers {

// Memory freed before a wait may be returned at the wait's end; the record of the wait reports what
// is left.
template <class Call, class... A>
CUresult settled(A... arguments) {
  const CUresult result = Call::real(arguments...);
  if (result == CUDA_SUCCESS) pools::after_wait();
  return result;
}

template <class Call>
CUresult wait_stream(CUstream stream) {
  return observed_wait(of_stream(stream, Call::kPerThread), [&] { return settled<Call>(stream); });
}
template <class Call>
CUresult wait_event(CUevent event) {
  return observed_wait(of_event(event), [&] { return settled<Call>(event); });
}
template <class Call>
CUresult wait_context() {
  return observed_context_wait(nullptr, [] { return settled<Call>(); });
}
template <class Call>
CUresult wait_context(CUcontext context) {
  return observed_context_wait(context, [&] { return settled<Call>(context); });
}
template <class Call>
CUresult query_stream(CUstream stream) {
  return observed_query(of_stream(stream, Call::kPerThread), [&] { return settled<Call>(stream); });
}
template <class Call>
CUresult query_event(CUevent event) {
  return observed_query(of_event(event), [&] { return settled<Call>(event); });
}
template <class Call, class... A>
CUresult record_event(CUevent event, CUstream stream, A... rest) {
  return ordered(shm::RecordKind::kEventRecord, normalise(stream, Call::kPerThread),
                 reinterpret_cast<uint64_t>(event),
                 [&] { return Call::real(event, stream, rest...); });
}
template <class Call>
CUresult wait_for_event(CUstream stream, CUevent event, unsigned flags) {
  const uint64_t named = normalise(stream, Call::kPerThread);
  // The stream may join a capture by this call, so treat it as in begin_capture.
  std::optional<partition::AtHome> at_home;
  if (any_capture()) at_home.emplace(as_stream(named));
  const OwnedStream owned(any_capture() ? g_channel.load(std::memory_order_acquire) : nullptr,
                          named);
  return ordered(shm::RecordKind::kEventWait, named, reinterpret_cast<uint64_t>(event),
                 [&] { return Call::real(stream, event, flags); });
}
// Changes a setting of the first stream named.
template <class Call, class... Rest>
CUresult set_stream(CUstream stream, Rest... rest) {
  const CUresult result = Call::real(stream, rest...);
  if (result == CUDA_SUCCESS) partition::copy_settings(stream);
  return result;
}
// The context that the record names for an event of all its streams. For a green context it is not
// known.
template <class Context>
CUcontext numbered(Context context) {
  if constexpr (std::is_same_v<Context, CUcontext>) return context;
  else return nullptr;
}
template <class Context, class Real>
CUresult ordered_in_context(shm::RecordKind kind, Context context, CUevent event, Real real) {
  const CUresult result = real();
  Channel* channel = g_channel.load(std::memory_order_acquire);
  if (channel && result == CUDA_SUCCESS) {
    record_context_order(*channel, kind, numbered(context), reinterpret_cast<uint64_t>(event));
  }
  return result;
}
template <class Call, class Context>
CUresult record_context_event(Context context, CUevent event) {
  return ordered_in_context(shm::RecordKind::kEventRecord, context, event,
                            [&] { return Call::real(context, event); });
}
template <class Call, class Context>
CUresult wait_for_context_event(Context context, CUevent event) {
  return ordered_in_context(shm::RecordKind::kEventWait, context, event,
                            [&] { return Call::real(context, event); });
}

}  // namespace tandem::shim::handlers
