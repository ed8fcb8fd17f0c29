// How long traced launches and copies take on the GPU: a pair of timing events around each, read
// after a waiting call has returned. Only with `tandem trace calls --device-times`.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tandem::shim::tracing {

struct EventPair;

// Records the first event; null when this launch is not to be timed: the stream captures, or no
// events are available.
EventPair* begin_device_time(CUstream stream);
void end_device_time(EventPair* pair, CUstream stream, bool taken);

// Records the pairs that have finished, oldest first, until `patience` unfinished ones were met.
void collect_device_times(uint32_t patience);

// The context (or, when null, the device's contexts) is about to go, and its events with it.
void drop_device_times(CUcontext context, CUdevice device);
void forget_device_times();  // the child of a fork

}  // namespace tandem::shim::tracing
