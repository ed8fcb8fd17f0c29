// Stops a job whose iterations, or phases, begin when the daemon says so: at the mark that ends the
// last iteration it may do for now, or that begins a phase it has to wait for.
//
// Rules
// 1. The mark itself never waits. The next submission does, at the gate, and so does the next
//    allocation. What the job holds at the mark is then what it holds while it is stopped.
// 2. Whether to stop is decided once, at the mark: a limit that arrives in the middle of an
//    iteration lets that iteration finish, however late it comes.
#pragma once

#include "channel.h"

namespace tandem::shim {

// The process has just made the `number`th mark of a kind.
void stop_at_limit(Channel& channel, shm::LimitKind kind, uint64_t number);

}  // namespace tandem::shim
