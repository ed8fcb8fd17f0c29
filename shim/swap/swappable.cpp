#include "swappable.h"

#include "holdings.h"
#include "homes.h"
#include "imports.h"
#include "mover.h"
#include "offers.h"
#include "put_off.h"
#include "slabs.h"
#include "traffic.h"
#include "use.h"
#include "wire.h"

namespace tandem::shim::swap {
namespace {

bool is_held(holdings::Kind kind, CUdeviceptr address) {
  const holdings::Locked table;
  return table->find(kind, address) != nullptr;
}

}  // namespace

bool is_wanted(const Channel* channel, uint64_t bytes) {
  if (!channel || !bytes || !(channel->features & wire::kFeatureSwap)) return false;
  g_on.store(true);
  return true;
}

CUresult release_if_ours(CUdeviceptr address) {
  if (!g_on.load(std::memory_order_relaxed)) return CUDA_ERROR_NOT_FOUND;
  Range packed;  // a slab is a region, too, and begins where its first part does
  return find_packed(address, &packed) ? unpack(address) : release_region(address);
}

CUresult release_unused(CUdeviceptr address) {
  Range packed;
  return find_packed(address, &packed) ? unpack_unused(address) : release_unused_region(address);
}

Range range_at(CUdeviceptr address) {
  if (!g_on.load(std::memory_order_relaxed)) return {};
  Range packed;
  return find_packed(address, &packed) ? packed : range_of(address);
}

void release_forgotten() {
  close_forgotten();
  if (!g_on.load(std::memory_order_relaxed)) return;
  forget_slabs_unless(
      [](CUdeviceptr address) { return is_held(holdings::Kind::kPacked, address); });
  release_regions_unless([](CUdeviceptr base) {
    Range packed;
    return is_held(holdings::Kind::kLinear, base) || find_packed(base, &packed);
  });
}

void give_up_spare(uint32_t device) {
  if (!g_on.load(std::memory_order_relaxed)) return;
  free_what_was_put_off();
  give_up_empty_slab(device);
}

void start_afresh() {
  forget_offers();
  forget_imports();
  forget_slabs();
  forget_regions();
  forget_homes();
  forget_mover();
  forget_traffic();
  forget_users();
}

}  // namespace tandem::shim::swap
