// A full barrier on every thread of this process at once, for the rare side of a protocol whose frequent side
// then has none of its own (asymmetric Dekker, as in liburcu). What such a thread stored before is seen after
// it by who called; what the caller stored before, that thread's next loads see.
#pragma once

namespace tandem::shim {

// Once a process, which a forked child need not do again. False: the kernel has none, or may not be asked.
// Takes some 10 ms beside other threads ("membarrier(2)": a grace period of RCU): nothing for a job's thread.
bool register_heavy_barrier();

// False: it is not to be had any more, as in a sandbox that the process has gone into since.
bool heavy_barrier();

}  // namespace tandem::shim
