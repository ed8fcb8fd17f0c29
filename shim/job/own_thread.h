// Threads of ours in somebody else's process.
#pragma once

namespace tandem::shim {

// Detached and with all signals blocked: the job's signals are the job's. False: there is none to be had.
bool start_own_thread(void* (*run)(void*));

}  // namespace tandem::shim
