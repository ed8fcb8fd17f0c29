// Saves another process and brings it back, by the driver's checkpoints: a call for each line of stdin.
// What is refused is answered by name; then only what undoes it is left to do.
//
//   checkpoint PID
#include "talk.h"

namespace {

// A call that this driver may not have. Its arguments may all be left out, says the manual, but for the
// time to wait.
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
    if (step("checkpoint", TRY_DRIVER(cuCheckpointProcessCheckpoint, "cuCheckpointProcessCheckpoint"),
             pid, (CUcheckpointCheckpointArgs*)nullptr))
      step("restore", TRY_DRIVER(cuCheckpointProcessRestore, "cuCheckpointProcessRestore"), pid,
           (CUcheckpointRestoreArgs*)nullptr);
    step("unlock", TRY_DRIVER(cuCheckpointProcessUnlock, "cuCheckpointProcessUnlock"), pid,
         (CUcheckpointUnlockArgs*)nullptr);
  }
  event("end").print();
  return 0;
}
