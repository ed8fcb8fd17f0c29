// The exported NVML functions: each takes NVML's own answer and reduces it to the job's part.
#include <cerrno>

#include "nvml/job_view.h"
#include "nvml/nvml_api.h"

namespace tandem::shim::nvml {
namespace {

class SavedErrno {
 public:
  SavedErrno() : saved_(errno) {}
  ~SavedErrno() { errno = saved_; }
  SavedErrno(const SavedErrno&) = delete;
  SavedErrno& operator=(const SavedErrno&) = delete;

 private:
  int saved_;
};

template <class Info>
void show_share(Device device, Info* info) {
  Share share;
  if (!share_of(device, info->total, &share)) return;
  info->total = share.total_bytes;
  info->used = share.used_bytes;
  info->free = share.total_bytes - share.used_bytes;
}

// Removes other jobs' processes in place. A first call that only asks for the count gets the
// device's count, which is always enough room.
template <class Process>
void leave_out_others(unsigned* count, Process* processes) {
  unsigned kept = 0;
  for (unsigned i = 0; i < *count; ++i) {
    if (is_of_this_job(processes[i].pid)) processes[kept++] = processes[i];
  }
  *count = kept;
}

template <class Process>
Status list(Status (*real)(Device, unsigned*, Process*), Device device, unsigned* count,
            Process* processes) {
  if (!real) return kFunctionNotFound;
  const Status status = real(device, count, processes);
  const SavedErrno saved;
  if (status == kSuccess && count && processes && has_own_view())
    leave_out_others(count, processes);
  return status;
}

template <class Info>
Status memory(Status (*real)(Device, Info*), Device device, Info* info) {
  if (!real) return kFunctionNotFound;
  const Status status = real(device, info);
  const SavedErrno saved;
  if (status == kSuccess && info) show_share(device, info);
  return status;
}

}  // namespace

#define EXPORTED extern "C" __attribute__((visibility("default"))) Status
#define LIST(name, Process)                                                                 \
  EXPORTED name(Device device, unsigned* count, Process* processes) {                       \
    return library() ? list(library()->name, device, count, processes) : kFunctionNotFound; \
  }
LIST(nvmlDeviceGetComputeRunningProcesses, ProcessV1)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, ProcessV2)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, ProcessV2)
LIST(nvmlDeviceGetGraphicsRunningProcesses, ProcessV1)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, ProcessV2)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, ProcessV2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, ProcessV1)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, ProcessV2)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, ProcessV2)

EXPORTED nvmlDeviceGetMemoryInfo(Device device, Memory* info) {
  return library() ? memory(library()->nvmlDeviceGetMemoryInfo, device, info) : kFunctionNotFound;
}
EXPORTED nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2* info) {
  return library() ? memory(library()->nvmlDeviceGetMemoryInfo_v2, device, info)
                   : kFunctionNotFound;
}

// The memory figure stays as it is: NVML has no per-process figure with the same meaning.
EXPORTED nvmlDeviceGetUtilizationRates(Device device, Utilization* utilization) {
  if (!library() || !library()->nvmlDeviceGetUtilizationRates) return kFunctionNotFound;
  const Status status = library()->nvmlDeviceGetUtilizationRates(device, utilization);
  const SavedErrno saved;
  unsigned percent = 0;
  if (status == kSuccess && utilization && has_own_view() && busy_percent(device, &percent))
    utilization->gpu = percent;
  return status;
}

}  // namespace tandem::shim::nvml
