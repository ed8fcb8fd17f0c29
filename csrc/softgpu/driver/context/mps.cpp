#include "mps.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "connection.h"

namespace softgpu {
namespace {

using namespace tandem::softgpu;

ssize_t receive(int fd, void* to, size_t bytes) {
  ssize_t got;
  do {
    got = recv(fd, to, bytes, 0);
  } while (got < 0 && errno == EINTR);
  return got;
}

// "ok SERVER PERCENT PRIORITY LIMIT... DEVICE,..." or "error CURESULT".
CUresult read_answer(const char* text, MpsMembership* membership) {
  int error = 0, used = 0;
  if (sscanf(text, "error %d", &error) == 1) return static_cast<CUresult>(error);
  if (sscanf(text, "ok %u %lf %u%n", &membership->server, &membership->percent,
             &membership->priority, &used) != 3) {
    return CUDA_ERROR_MPS_CONNECTION_FAILED;
  }
  const char* at = text + used;
  for (uint64_t& limit : membership->memory.bytes) {
    char* end = nullptr;
    limit = strtoull(at, &end, 10);
    at = end;
  }
  membership->devices = at + strspn(at, " ");
  membership->member = true;
  return CUDA_SUCCESS;
}

// Applies what the program's own environment asks for, but never more than the server gives.
void apply_environment(MpsMembership* membership) {
  const double percent = parse_mps_percentage(getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"));
  if (percent > 0) membership->percent = std::min(membership->percent, percent);
  MpsMemoryLimits own;
  const char* limits = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
  if (limits && parse_mps_limits(limits, &own)) {
    for (uint32_t i = 0; i < kMaxDevices; ++i) {
      membership->memory.bytes[i] = std::min(membership->memory.bytes[i], own.bytes[i]);
    }
  }
  const char* priority = getenv("CUDA_MPS_CLIENT_PRIORITY");
  if (priority && (strcmp(priority, "0") == 0 || strcmp(priority, "1") == 0)) {
    membership->priority = static_cast<uint32_t>(*priority - '0');
  }
}

}  // namespace

CUresult look_for_mps(MpsMembership* membership) {
  const int fd = connect_socket(mps_pipe_directory() + "/control");
  if (fd >= 0) {
    constexpr char kRequest[] = "client";
    char text[4096] = "";  // lists of devices that are partitioned into instances are long
    // No deadline: another user's server may have to end first, which takes as long as its clients
    // run.
    const bool asked = send(fd, kRequest, sizeof kRequest - 1, MSG_NOSIGNAL) > 0;
    const ssize_t got = asked ? receive(fd, text, sizeof text - 1) : -1;
    const CUresult answer =
        got > 0 ? read_answer(text, membership) : CUDA_ERROR_MPS_CONNECTION_FAILED;
    if (answer != CUDA_SUCCESS) {
      close(fd);
      return answer;
    }
    membership->control_fd = fd;
  }
  apply_environment(membership);
  return CUDA_SUCCESS;
}

CUresult join_mps(int fd, const MpsMembership& membership) {
  JoinMps join{};
  join.header = {static_cast<uint16_t>(Type::kJoinMps), sizeof join, 0};
  join.server = membership.server;
  join.priority = membership.priority;
  memcpy(join.memory_limit_bytes, membership.memory.bytes, sizeof join.memory_limit_bytes);
  JoinReply reply{};
  if (send(fd, &join, sizeof join, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof join) ||
      receive(fd, &reply, sizeof reply) != static_cast<ssize_t>(sizeof reply)) {
    return CUDA_ERROR_MPS_CONNECTION_FAILED;
  }
  return static_cast<CUresult>(reply.status);
}

}  // namespace softgpu
