// Checkpoint calls. They act on another process, or on this one, through the device process, over a
// connection of their own. So they need no cuInit, and a lock does not hold them back.
#include <dirent.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "api.h"
#include "connection.h"

namespace softgpu {
namespace {

using proto::CheckpointVerb;

// While this thread waits for the device process, it does not hold up its clock.
class Outside {
 public:
  Outside() {
    Call call(Call::kClock);
    left_ = !call.error && call.rt.is_virtual() && !this_thread().outside;
    if (!left_) return;
    this_thread().outside = true;
    call.rt.flush();
    call.rt.thread_ends();
  }
  ~Outside() {
    if (left_) const Call again(Call::kClock);
  }

 private:
  bool left_ = false;
};

bool receive_reply(int fd, proto::CheckpointReply* reply) {
  ssize_t got;
  do {
    got = recv(fd, reply, sizeof *reply, 0);
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(sizeof *reply) &&
         reply->header.type == static_cast<uint16_t>(proto::Type::kCheckpointReply);
}

// What this process has released or submitted must arrive before its request.
void send_what_is_due() {
  Call call(Call::kClock);
  if (!call.error) call.rt.flush();
}

CUresult ask(int pid, CheckpointVerb verb, uint64_t timeout_ns, CUprocessState* state) {
  if (pid <= 0) return CUDA_ERROR_INVALID_VALUE;
  send_what_is_due();
  proto::Welcome welcome{};
  const int fd = connect_to_device(proto::kQueryOnly, false, &welcome);
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;  // without a device process, no process uses a GPU
  proto::Checkpoint message{};
  message.header = {static_cast<uint16_t>(proto::Type::kCheckpoint), sizeof message, 0};
  message.pid = static_cast<uint32_t>(pid);
  message.verb = static_cast<uint32_t>(verb);
  message.timeout_ns = timeout_ns;
  proto::CheckpointReply reply{};
  bool answered =
      send(fd, &message, sizeof message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof message);
  if (answered) {
    const Outside outside;  // only now: virtual time must stand still until the request has arrived
    answered = receive_reply(fd, &reply);
  }
  close(fd);
  if (!answered) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  if (state) *state = static_cast<CUprocessState>(reply.state);
  return static_cast<CUresult>(reply.status);
}

template <class Reserved>
bool all_zero(const Reserved& reserved) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(&reserved);
  return std::all_of(bytes, bytes + sizeof reserved, [](unsigned char byte) { return byte == 0; });
}

// Finds a process's thread that works for the driver, by its name.
int find_restore_thread(int pid) {
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  DIR* listing = opendir(tasks.c_str());
  if (!listing) return 0;
  int found = 0;
  while (const dirent* entry = readdir(listing)) {
    char name[32] = "";
    FILE* file = fopen((tasks + "/" + entry->d_name + "/comm").c_str(), "re");
    if (!file) continue;
    if (fgets(name, sizeof name, file) && strcmp(name, "softgpu-restore\n") == 0) {
      found = atoi(entry->d_name);
    }
    fclose(file);
  }
  closedir(listing);
  return found;
}

// Only restoring onto the devices that the process was on is possible here.
CUresult check_pairs(const CUcheckpointRestoreArgs& args) {
#if CUDA_VERSION >= 13000
  if (args.gpuPairsCount > 0 && !args.gpuPairs) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < args.gpuPairsCount; ++i) {
    if (memcmp(&args.gpuPairs[i].oldUuid, &args.gpuPairs[i].newUuid, sizeof(CUuuid)) != 0) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
#else
  (void)args;
#endif
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

SOFTGPU_API cuCheckpointProcessGetState(int pid, CUprocessState* state) {
  if (!state) return CUDA_ERROR_INVALID_VALUE;
  return ask(pid, CheckpointVerb::kGetState, 0, state);
}

SOFTGPU_API cuCheckpointProcessGetRestoreThreadId(int pid, int* tid) {
  if (!tid) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult bad = ask(pid, CheckpointVerb::kGetState, 0, nullptr)) return bad;
  const int found = find_restore_thread(pid);
  if (found == 0) return CUDA_ERROR_INVALID_VALUE;
  *tid = found;
  return CUDA_SUCCESS;
}

SOFTGPU_API cuCheckpointProcessLock(int pid, CUcheckpointLockArgs* args) {
  if (args && (args->reserved0 != 0 || !all_zero(args->reserved1))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t timeout_ns = args ? uint64_t{args->timeoutMs} * 1'000'000 : 0;
  return ask(pid, CheckpointVerb::kLock, timeout_ns, nullptr);
}

SOFTGPU_API cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs* args) {
  // Must be all zero: copying to custom storage is not implemented.
  if (args && !all_zero(*args)) return CUDA_ERROR_NOT_SUPPORTED;
  return ask(pid, CheckpointVerb::kCheckpoint, 0, nullptr);
}

SOFTGPU_API cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs* args) {
  if (args) {
    if (const CUresult bad = check_pairs(*args)) return bad;
#if CUDA_VERSION >= 13040
    if (args->customStorageInfo_out) return CUDA_ERROR_NOT_SUPPORTED;
#endif
  }
  return ask(pid, CheckpointVerb::kRestore, 0, nullptr);
}

SOFTGPU_API cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs* args) {
  if (args && !all_zero(*args)) return CUDA_ERROR_INVALID_VALUE;
  return ask(pid, CheckpointVerb::kUnlock, 0, nullptr);
}
