// Saves another process and restores it by the driver's checkpoints, one call for each line on
// stdin. A refusal is reported by name; after that only the calls that undo the earlier ones
// remain.
//
//   checkpoint PID
#include "talk.h"

namespace {

// Makes a call that this driver may not have. According to the manual, all arguments may be omitted
// except the time to wait.
template <class Function, class... Arguments>
bool step(const char* call, Function* function, Arguments... arguments) {
  if (!next_order()) exit(0);
  const uint64_t start_ns = now_ns();
  const CUresult result = function != nullptr ? function(arguments...) : CUDA_ERROR_NOT_FOUND;
  event("step")
      .add("call", call)
      .add("result", name_of(result))
      .add("ms", us_since(start_ns) / 1e3)
      .print();
  return result == CUDA_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const int pid = atoi(argv[1]);
  check(DRIVER(cuInit, "cuInit")(0), "cuInit");
  CUcheckpointLockArgs lock = {};
  lock.timeoutMs = 10000;
  event("ready").print();
  if (step("lock", TRY_DRIVER(cuCheckpointProcessLock, "cuCheckpointProcessLock"), pid, &lock)) {
    if (step("checkpoint",
             TRY_DRIVER(cuCheckpointProcessCheckpoint, "cuCheckpointProcessCheckpoint"), pid,
             (CUcheckpointCheckpointArgs*)nullptr))
      step("restore", TRY_DRIVER(cuCheckpointProcessRestore, "cuCheckpointProcessRestore"), pid,
           (CUcheckpointRestoreArgs*)nullptr);
    step("unlock", TRY_DRIVER(cuCheckpointProcessUnlock, "cuCheckpointProcessUnlock"), pid,
         (CUcheckpointUnlockArgs*)nullptr);
  }
  event("end").print();
  return 0;
}
