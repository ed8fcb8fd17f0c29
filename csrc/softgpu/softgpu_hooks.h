// What the software GPU's libcuda.so.1 exports besides the driver API. A real driver does not have
// these names: look them up with dlsym and use the system's clock when they are NULL.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Device time in nanoseconds: CLOCK_MONOTONIC on the real clock, otherwise virtual time.
uint64_t softgpu_now_ns(void);

// Returns 1 when the device runs on the virtual clock, 0 on the real one. Connects if needed.
int softgpu_clock_is_virtual(void);

// Blocks the calling thread until the device's clock has reached deadline_ns (sleeps on the real
// clock). In an observer it may return earlier: an observer also serves others, who live in real
// time, and virtual time creeps while kernel bodies take long.
void softgpu_wait_until_ns(uint64_t deadline_ns);

// Like softgpu_wait_until_ns, for a thread that polls memory which others write. On the virtual
// clock it returns early once some thread that takes part in the clock has done something since
// this process last looked, but not before step_ns have passed since that look (step_ns 0: never
// early). `only_looked` says that the calling thread, too, has only looked since its last wait
// returned, so nobody has to look because of it. Returns 0 if neither the change nor the deadline
// has come: the process is an observer and others want something of it.
int softgpu_wait_for_change(uint64_t step_ns, uint64_t deadline_ns, int only_looked);

// Makes an observer's thread return from its wait for a change (one with a step_ns), or from its
// next such wait at once. Any thread may call it.
void softgpu_end_nap(void);

// The calling thread is about to block outside the driver (a futex, a socket, a join): the clock
// must not wait for it. It must call nothing else here before softgpu_wait_end. No-ops on the real
// clock.
void softgpu_wait_begin(void);
void softgpu_wait_end(void);

// Call this before anything else in a process that takes part in the clock but never computes.
void softgpu_observe(void);

// Implements cudaGraphSetConditional of tandem_kernel.h for kernels.
void softgpu_graph_set_conditional(uint64_t handle, unsigned value);

#ifdef __cplusplus
}
#endif
