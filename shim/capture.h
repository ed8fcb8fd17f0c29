// Stream captures: a launch into a capturing stream is not a submission, and a thread that captures
// must never wait.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>

namespace tandem::shim {

// Captures begun and not ended in this process. Relaxed: only says whether to look closer.
extern std::atomic<uint32_t> g_captures;

void note_capture_begun();
void note_capture_ended();

// This thread began captures. They may have been ended by others meanwhile: where the process has none
// any more, the thread has none either.
bool still_captures();

// Exact, by asking the driver: streams join a capture through events too.
bool is_capturing(CUstream stream);

inline bool any_capture() { return g_captures.load(std::memory_order_relaxed) != 0; }

}  // namespace tandem::shim
