// The shim's threads in somebody else's process.
#pragma once

namespace tandem::shim {

// Starts a thread that is detached and blocks all signals: the job's signals are for the job.
// False: no thread could be created.
bool start_own_thread(void* (*run)(void*));

}  // namespace tandem::shim
