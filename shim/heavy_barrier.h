// Issues a full memory barrier on every thread of this process at once. It serves the rare side of
// a protocol whose frequent side then needs no barrier of its own (asymmetric Dekker, as in
// liburcu). The caller sees what each thread stored before the barrier; each thread's loads after
// the barrier see what the caller stored before it.
#pragma once

namespace tandem::shim {

// Once per process; a forked child need not repeat it. False: the kernel lacks the call, or forbids
// it. Takes some 10 ms if the process has other threads ("membarrier(2)": a grace period of RCU),
// so a job's thread must not call it.
bool register_heavy_barrier();

// False: the barrier is no longer available, for example because the process has entered a sandbox
// since.
bool heavy_barrier();

}  // namespace tandem::shim
