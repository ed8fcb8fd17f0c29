#include "admission.h"

#include "driver.h"
#include "graph_memory.h"
#include "line.h"
#include "memory.h"
#include "pool_rows.h"
#include "session.h"
#include "swappable.h"

namespace tandem::shim {
namespace {

// Physical memory needs no context, so there may be no daemon to ask yet: the limit is then what
// `tandem run` agreed with it.
uint64_t limit_now(uint32_t device) {
  const uint64_t limit = memory::bound_bytes();
  if (limit != shm::kNoLimit || g_session.load(std::memory_order_acquire) != SessionState::kFresh)
    return limit;
  size_t total = 0;
  if (g_driver.cuDeviceTotalMem_v2)
    g_driver.cuDeviceTotalMem_v2(&total, static_cast<CUdevice>(device));
  return agreed_limit(total);
}

}  // namespace

void give_up_spare_memory(uint32_t device) {
  pools::trim(device);
  graph_memory::trim(device);
  swap::give_up_spare(device);
}

bool admit(uint32_t device, uint64_t bytes) {
  const uint64_t limit = limit_now(device);
  if (memory::take(device, bytes, limit)) return true;
  give_up_spare_memory(device);
  if (memory::take(device, bytes, limit)) return true;
  line::note_refused_by_quota();
  memory::publish();
  return false;
}

// A driver that has no room first looks for some in the pools.
void undo_admission(uint32_t device, uint64_t bytes, CUresult why) {
  memory::give_back(device, bytes);
  if (why == CUDA_ERROR_OUT_OF_MEMORY) pools::refresh_all(device);
}

bool admit_reuse(uint32_t device) {
  if (!memory::is_over_limit(device)) return true;
  give_up_spare_memory(device);
  if (!memory::is_over_limit(device)) return true;
  line::note_refused_by_quota();
  return false;
}

}  // namespace tandem::shim
