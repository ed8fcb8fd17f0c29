// Stream captures: a launch into a capturing stream is not a submission, and a thread that captures
// must never wait.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

namespace tandem::shim {

// Captures begun and not ended in this process. Relaxed: only tells whether to look closer.
extern std::atomic<uint32_t> g_captures;

// A capture belongs to the stream in which it began (normalised) until that stream ends it, from
// whatever thread, or is destroyed.
void note_capture_begun(uint64_t stream);
void note_capture_ended(uint64_t stream);
void note_stream_destroyed(CUstream stream);
void note_context_destroyed(uint64_t context);
void forget_captures();  // in a forked child

// Exact, because it asks the driver: streams also join a capture through events.
bool is_capturing(CUstream stream);

inline bool any_capture() {
  return __builtin_expect(g_captures.load(std::memory_order_relaxed) != 0, 0);
}

// Whether the calling thread has begun a capture that is still going on.
bool has_capture_of_this_thread();
inline bool this_thread_captures() { return any_capture() && has_capture_of_this_thread(); }

}  // namespace tandem::shim
