// Captures, and the ends of streams.
#pragma once

#include <cuda.h>

#include "capture.h"
#include "driver.h"
#include "faults.h"
#include "observe.h"
#include "segments.h"
#include "slots.h"
#include "streams.h"

namespace tandem::shim::handlers {

// The shim owns the stream until it is known to capture: a marker from the helper would become a
// node of the program's graph, and a marker in the legacy stream would end the capture.
template <class Call, class... A>
CUresult begin_capture(CUstream stream, A... rest) {
  const uint64_t named = normalise(stream, Call::kPerThread);
  const partition::AtHome at_home(as_stream(named));
  Channel* channel = g_channel.load(std::memory_order_acquire);
  const bool late = planted(Fault::kMarkInCapture);
  // While anything captures, no marker may go into the legacy stream, so what is there would count
  // as unfinished for that long.
  if (channel && !late) close_open_segments(*channel);
  const OwnedStream owned(channel, named);
  const bool has_segment = owned.slot() != kNoSlot && !channel->observe;
  if (has_segment && !late) close_or_settle_owned(*channel, owned.slot());
  const OwnedLegacyStreams legacy(channel, owned.slot());
  const CUresult result = Call::real(stream, rest...);
  if (result == CUDA_SUCCESS) note_capture_begun(named);
  if (has_segment && late) close_owned_segment(*channel, owned.slot());
  return result;
}
template <class Call, class... A>
CUresult end_capture(CUstream stream, A... rest) {
  const uint64_t named = normalise(stream, Call::kPerThread);
  const bool was_capturing = any_capture() && is_capturing(as_stream(named));
  const CUresult result = Call::real(stream, rest...);
  if (was_capturing && !is_capturing(as_stream(named))) note_capture_ended(named);
  return result;
}
template <class Call>
CUresult destroy_stream(CUstream stream) {
  retire_stream(stream);
  partition::Ending ending(stream);
  const CUresult result = Call::real(stream);
  ending.end(result == CUDA_SUCCESS);
  if (result == CUDA_SUCCESS) note_stream_destroyed(stream);
  return result;
}
// The streams outlive the green context, detached from it; nothing may be put into them any more.
template <class Call>
CUresult destroy_green(CUgreenCtx green) {
  CUcontext context = nullptr;
  if (!g_channel.load(std::memory_order_acquire) || !green || !g_driver.cuCtxFromGreenCtx ||
      g_driver.cuCtxFromGreenCtx(&context, green) != CUDA_SUCCESS || !context) {
    return Call::real(green);
  }
  return destroying_context(context, [&] { return Call::real(green); });
}

}  // namespace tandem::shim::handlers
