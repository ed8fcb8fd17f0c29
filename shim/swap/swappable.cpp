#include "swappable.h"

#include "holdings.h"
#include "homes.h"
#include "mover.h"
#include "traffic.h"
#include "use.h"
#include "wire.h"

namespace tandem::shim::swap {

bool is_wanted(const Channel* channel, uint64_t bytes) {
  if (!channel || bytes < kSmallestRegion || !(channel->features & wire::kFeatureSwap)) return false;
  g_on.store(true);
  return true;
}

CUresult release_if_ours(CUdeviceptr address) {
  if (!g_on.load(std::memory_order_relaxed)) return CUDA_ERROR_NOT_FOUND;
  return release_region(address);
}

Range range_at(CUdeviceptr address) {
  return g_on.load(std::memory_order_relaxed) ? range_of(address) : Range{};
}

void release_forgotten() {
  if (!g_on.load(std::memory_order_relaxed)) return;
  release_regions_unless([](CUdeviceptr base) {
    const holdings::Locked table;
    return table->find(holdings::Kind::kLinear, base) != nullptr;
  });
}

void start_afresh() {
  forget_regions();
  forget_homes();
  forget_mover();
  forget_traffic();
  forget_users();
}

}  // namespace tandem::shim::swap
