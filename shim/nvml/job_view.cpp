#include "nvml/job_view.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "driver.h"
#include "memory.h"
#include "session.h"
#include "settings.h"

namespace tandem::shim::nvml {
namespace {

constexpr unsigned kMostProcesses = 256;
constexpr char kJobName[] = "TANDEM_JOB_ID=";

bool is_attached() { return g_session.load(std::memory_order_acquire) == SessionState::kStarted; }

uint64_t limit_for(uint64_t device_bytes) {
  return is_attached() ? memory::limit_bytes() : agreed_limit(device_bytes);
}

bool parse_uuid(const char* text, unsigned char* bytes) {
  const char* at = std::strchr(text, '-');  // GPU-..., MIG-...
  int count = 0;
  for (at = at ? at + 1 : text; *at && count < 16; at += *at == '-' ? 1 : 2) {
    if (*at == '-') continue;
    // Not sscanf: from glibc 2.38 on it is a different function. The text ends with a zero, which
    // is no digit.
    if (std::from_chars(at, at + 2, bytes[count++], 16).ptr != at + 2) return false;
  }
  return count == 16;
}

// CUDA's ordinal for NVML's device; false: this process does not see it.
bool ordinal_of(Device device, uint32_t* ordinal) {
  char text[96] = {};
  unsigned char wanted[16];
  int count = 0;
  if (!library()->nvmlDeviceGetUUID || !resolve_driver() || !g_driver.cuDeviceGetCount ||
      !g_driver.cuDeviceGetUuid_v2 ||
      library()->nvmlDeviceGetUUID(device, text, sizeof(text)) != kSuccess ||
      !parse_uuid(text, wanted) || g_driver.cuDeviceGetCount(&count) != CUDA_SUCCESS) {
    return false;
  }
  for (int i = 0; i < count; ++i) {
    CUuuid uuid{};
    if (g_driver.cuDeviceGetUuid_v2(&uuid, i) != CUDA_SUCCESS) continue;
    if (std::memcmp(uuid.bytes, wanted, sizeof(wanted)) != 0) continue;
    *ordinal = static_cast<uint32_t>(i);
    return true;
  }
  return false;
}

// What the job's processes use according to NVML.
uint64_t told_of_job(Device device) {
  ProcessV2 processes[kMostProcesses];
  unsigned count = kMostProcesses;
  const auto list = library()->nvmlDeviceGetComputeRunningProcesses_v3
                        ? library()->nvmlDeviceGetComputeRunningProcesses_v3
                        : library()->nvmlDeviceGetComputeRunningProcesses_v2;
  if (!list || list(device, &count, processes) != kSuccess) return 0;
  uint64_t bytes = 0;
  for (unsigned i = 0; i < std::min(count, kMostProcesses); ++i) {
    if (processes[i].used_bytes != kNotAvailable && is_of_this_job(processes[i].pid))
      bytes += processes[i].used_bytes;
  }
  return bytes;
}

// Reads through a small buffer: an environment may be large, and the heap belongs to the job.
bool environment_has(int fd, const char* wanted) {
  const size_t length = std::strlen(wanted) + 1;  // including the end of the string
  char buffer[4096];
  size_t matched = 0;
  bool at_start = true;
  for (ssize_t got = read(fd, buffer, sizeof(buffer)); got > 0;
       got = read(fd, buffer, sizeof(buffer))) {
    for (ssize_t i = 0; i < got; ++i) {
      if ((at_start || matched > 0) && buffer[i] == wanted[matched]) {
        if (++matched == length) return true;
      } else {
        matched = 0;
      }
      at_start = buffer[i] == '\0';
    }
  }
  return false;
}

}  // namespace

bool has_own_view() {
  const uint64_t limit = is_attached() ? memory::limit_bytes() : agreed_limit(uint64_t{1} << 40);
  return limit != shm::kNoLimit;
}

bool share_of(Device device, uint64_t device_bytes, Share* share) {
  const uint64_t limit = limit_for(device_bytes);
  if (limit == shm::kNoLimit) return false;
  uint32_t ordinal = 0;
  const uint64_t used = !is_attached()                 ? told_of_job(device)
                        : ordinal_of(device, &ordinal) ? memory::used_bytes(ordinal)
                                                       : 0;
  share->total_bytes = std::min(limit, device_bytes);
  share->used_bytes = std::min(used, share->total_bytes);
  return true;
}

bool is_of_this_job(unsigned pid) {
  if (pid == static_cast<unsigned>(getpid())) return true;
  const char* job = secure_getenv("TANDEM_JOB_ID");
  char wanted[64], path[32];
  if (!job || std::snprintf(wanted, sizeof(wanted), "%s%s", kJobName, job) >= 64) return false;
  std::snprintf(path, sizeof(path), "/proc/%u/environ", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);  // fails for another user's process
  if (fd < 0) return false;
  const bool found = environment_has(fd, wanted);
  close(fd);
  return found;
}

bool busy_percent(Device device, unsigned* percent) {
  ProcessSample samples[kMostProcesses];
  unsigned count = kMostProcesses;
  if (!library()->nvmlDeviceGetProcessUtilization ||
      library()->nvmlDeviceGetProcessUtilization(device, samples, &count, 0) != kSuccess) {
    return false;
  }
  // Samples of several moments may arrive at once: the newest of each process counts.
  unsigned sum = 0;
  for (unsigned i = 0; i < std::min(count, kMostProcesses); ++i) {
    bool is_newest = is_of_this_job(samples[i].pid);
    for (unsigned other = 0; is_newest && other < std::min(count, kMostProcesses); ++other) {
      const bool same = other != i && samples[other].pid == samples[i].pid;
      if (same && (samples[other].time_us > samples[i].time_us ||
                   (samples[other].time_us == samples[i].time_us && other > i))) {
        is_newest = false;
      }
    }
    if (is_newest) sum += samples[i].sm;
  }
  *percent = std::min(sum, 100u);
  return true;
}

}  // namespace tandem::shim::nvml
