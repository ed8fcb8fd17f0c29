#include "heavy_barrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace tandem::shim {
namespace {

bool ask(int command) {
  const int saved = errno;  // the job's
  const bool taken = syscall(SYS_membarrier, command, 0, 0) == 0;
  errno = saved;
  return taken;
}

}  // namespace

bool register_heavy_barrier() { return ask(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED); }

bool heavy_barrier() {
  // A process restored from a checkpoint may have lost its registration.
  return ask(MEMBARRIER_CMD_PRIVATE_EXPEDITED) ||
         (register_heavy_barrier() && ask(MEMBARRIER_CMD_PRIVATE_EXPEDITED));
}

}  // namespace tandem::shim
