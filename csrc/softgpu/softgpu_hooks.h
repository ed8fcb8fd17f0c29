// What libcuda.so.1 of the software GPU exports beside the driver API. On a real driver these names
// do not exist: look them up with dlsym and use the system's clock when they are NULL.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Nanoseconds of the device's clock: CLOCK_MONOTONIC on the real clock, else virtual time.
uint64_t softgpu_now_ns(void);

// 1 when the device runs on the virtual clock, 0 on the real one. Connects if needed.
int softgpu_clock_is_virtual(void);

// Block the calling thread until the device's clock has reached deadline_ns (sleep on the real one).
// An observer may come back earlier: it has others to answer, who keep real time, and virtual time
// creeps where kernels take their bodies long.
void softgpu_wait_until_ns(uint64_t deadline_ns);

// The same, for who looks again and again at what others write to memory. Comes back sooner on the
// virtual clock once some thread that takes part in it has done something since this process looked last,
// step_ns after that look or later (0: never sooner). `only_looked`: so did the calling thread since it
// came back from its last wait, and nobody has to look because of it. 0: neither has come, it is an
// observer that others want something of.
int softgpu_wait_for_change(uint64_t step_ns, uint64_t deadline_ns, int only_looked);

// The thread of an observer that waits for a change (with a step_ns) comes back, or from its next such
// wait at once. For any thread.
void softgpu_end_nap(void);

// The calling thread is about to block outside the driver (a futex, a socket, a join): do not wait
// for it. Nothing else may be called by it before softgpu_wait_end. No-ops on the real clock.
void softgpu_wait_begin(void);
void softgpu_wait_end(void);

// Call before anything else in a process that takes part in the clock but never computes.
void softgpu_observe(void);

// For kernels: cudaGraphSetConditional of tandem_kernel.h.
void softgpu_graph_set_conditional(uint64_t handle, unsigned value);

#ifdef __cplusplus
}
#endif
