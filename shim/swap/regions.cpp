#include "regions.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>

#include "channel.h"
#include "driver.h"
#include "homes.h"
#include "mutex.h"
#include "own_array.h"
#include "traffic.h"

namespace tandem::shim::swap {
namespace {

constexpr uint64_t kPieceBytes = 32 << 20;  // large enough for a copy to reach the link's rate

struct Region {
  CUdeviceptr base;
  uint64_t bytes;     // as requested
  uint64_t reserved;  // addresses and, in the form of pieces, memory
  uint64_t context;
  Token token;  // set once it is shared
};

// Protects users from each other; the mover has the tables to itself.
pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
OwnArray<Region> g_regions;  // by address
OwnArray<Piece> g_pieces;    // by address
std::atomic<uint64_t> g_swappable{0};
std::atomic<uint64_t> g_resident{0};
// Whether a piece was ever lost; relaxed: a caller has waited for the mover.
std::atomic<bool> g_any_lost{false};

bool has_virtual_memory(uint32_t device) {
  int yes = 0;
  return g_driver.cuMemAddressReserve && g_driver.cuMemCreate && g_driver.cuMemMap &&
         g_driver.cuMemSetAccess && g_driver.cuMemUnmap && g_driver.cuMemRelease &&
         g_driver.cuMemAddressFree && g_driver.cuMemGetAllocationGranularity &&
         g_driver.cuDeviceGetAttribute(&yes,
                                       CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                       static_cast<CUdevice>(device)) == CUDA_SUCCESS &&
         yes != 0;
}

bool can_export(uint32_t device) {
  int yes = 0;
  return g_driver.cuMemExportToShareableHandle &&
         g_driver.cuDeviceGetAttribute(
             &yes, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
             static_cast<CUdevice>(device)) == CUDA_SUCCESS &&
         yes != 0;
}

// Memory that may be shared has to be created for that.
CUmemAllocationProp properties_of(uint32_t device) {
  CUmemAllocationProp properties{};
  if (can_export(device))
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {static_cast<int>(device)}};
  return properties;
}

// The size unit of pieces; 0 = no pieces can be created.
uint64_t unit_of(uint32_t device) {
  if (!has_virtual_memory(device)) return 0;
  const CUmemAllocationProp properties = properties_of(device);
  size_t unit = 0;
  if (g_driver.cuMemGetAllocationGranularity(&unit, &properties,
                                             CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS) {
    return 0;
  }
  // Homes come in this unit.
  return unit && shm::kSwapUnit % unit == 0 ? shm::kSwapUnit : 0;
}

CUdeviceptr address_of(const Region& region) { return region.base; }
CUdeviceptr address_of(const Piece& piece) { return piece.at; }

template <class T>
size_t place_of(OwnArray<T>& sorted, CUdeviceptr address) {
  const auto after =
      std::lower_bound(sorted.begin(), sorted.end(), address,
                       [](const T& each, CUdeviceptr wanted) { return address_of(each) < wanted; });
  return static_cast<size_t>(after - sorted.begin());
}
bool is_region(size_t at, CUdeviceptr base) {
  return at < g_regions.size() && g_regions[at].base == base;
}

// The piece is gone, or can no longer be moved.
void stop_counting(const Piece& piece) {
  if (piece.pinned || piece.lost) return;
  g_swappable.fetch_sub(piece.bytes, std::memory_order_relaxed);
  if (piece.resident) g_resident.fetch_sub(piece.bytes, std::memory_order_relaxed);
}

// Drops the pieces of [base, base + bytes), which are gone.
void drop_pieces(CUdeviceptr base, uint64_t bytes) {
  for (const size_t at = place_of(g_pieces, base);
       at < g_pieces.size() && g_pieces[at].at < base + bytes;) {
    Piece& piece = g_pieces[at];
    if (piece.resident) unmap_piece(&piece);
    if (piece.home) give_home_back(piece.home);
    // What the driver did not take back is lost, and no longer the shim's to count.
    stop_counting(piece);
    g_pieces.erase(at);
  }
}

CUresult add_pieces(const Region& region, uint32_t device) {
  for (uint64_t done = 0; done < region.reserved; done += kPieceBytes) {
    Piece piece{};
    piece.at = region.base + done;
    piece.bytes = std::min(kPieceBytes, region.reserved - done);
    piece.context = region.context;
    piece.device = device;
    const CUresult result = map_piece(&piece);
    if (result != CUDA_SUCCESS) return result;
    g_swappable.fetch_add(piece.bytes, std::memory_order_relaxed);
    if (!g_pieces.insert(place_of(g_pieces, piece.at), piece)) {
      g_swappable.fetch_sub(piece.bytes, std::memory_order_relaxed);
      unmap_piece(&piece);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  return CUDA_SUCCESS;
}

// Under the lock, or a piece being added would count as away, or as too much.
uint64_t swapped_locked() { return swappable_bytes() - resident_bytes(); }

void publish_locked() {
  Channel* channel = g_channel.load(std::memory_order_acquire);
  if (!channel) return;
  shm::StateSwap& swap = channel->state->swap;
  swap.swappable_bytes.store(swappable_bytes(), std::memory_order_relaxed);
  swap.swapped_bytes.store(swapped_locked(), std::memory_order_relaxed);
  swap.filed_bytes.store(bytes_in_files(), std::memory_order_relaxed);
  publish_traffic(&swap);
}

template <class Visit>
void for_pieces(const Region& region, Visit visit) {
  const size_t first = place_of(g_pieces, region.base);
  for (size_t at = first; at < g_pieces.size(); ++at) {
    if (g_pieces[at].at - region.base >= region.reserved) return;
    visit(at - first, g_pieces[at]);
  }
}

// Whether it is on the device and was created for sharing.
bool can_be_shared(const Region& region) {
  bool yes = true;
  for_pieces(region, [&](size_t, const Piece& piece) {
    yes = yes && piece.resident && can_export(piece.device);
  });
  return yes;
}

const Region* named(const Token& token) {
  if (!token) return nullptr;
  for (const Region& region : g_regions) {
    if (region.token == token) return &region;
  }
  return nullptr;
}

void drop(const Region& region) {
  drop_pieces(region.base, region.reserved);
  g_driver.cuMemAddressFree(region.base, region.reserved);
}

}  // namespace

CUresult allocate_region(CUdeviceptr* out, uint64_t bytes, uint64_t context, uint32_t device,
                         uint64_t* held) {
  const uint64_t unit = unit_of(device);
  if (!unit || bytes > UINT64_MAX - unit) return CUDA_ERROR_NOT_SUPPORTED;
  Region region{0, bytes, (bytes + unit - 1) / unit * unit, context, {}};
  CUresult result = g_driver.cuMemAddressReserve(&region.base, region.reserved, 0, 0, 0);
  if (result != CUDA_SUCCESS) return result;
  const HoldsMutex lock(&g_lock);
  result = add_pieces(region, device);
  if (result == CUDA_SUCCESS && !g_regions.insert(place_of(g_regions, region.base), region))
    result = CUDA_ERROR_OUT_OF_MEMORY;
  if (result != CUDA_SUCCESS) {
    drop(region);
    return result;
  }
  publish_locked();
  *out = region.base;
  *held = region.reserved;
  return CUDA_SUCCESS;
}

CUresult release_region(CUdeviceptr base) {
  const Range range = range_of(base);
  if (!range.bytes || range.base != base) return CUDA_ERROR_NOT_FOUND;
  const CUresult waited = wait_for_work(range.context);
  return waited == CUDA_SUCCESS ? release_unused_region(base) : waited;
}

CUresult release_unused_region(CUdeviceptr base) {
  const HoldsMutex lock(&g_lock);
  const size_t at = place_of(g_regions, base);
  if (!is_region(at, base)) return CUDA_ERROR_NOT_FOUND;  // another thread has freed it, too
  drop(g_regions[at]);
  g_regions.erase(at);
  publish_locked();
  return CUDA_SUCCESS;
}

void release_regions_unless(bool (*keep)(CUdeviceptr base)) {
  const HoldsMutex lock(&g_lock);
  for (size_t at = 0; at < g_regions.size();) {
    if (keep(g_regions[at].base)) {
      ++at;
      continue;
    }
    drop(g_regions[at]);
    g_regions.erase(at);
  }
  publish_locked();
}

Range range_of(CUdeviceptr address) {
  const HoldsMutex lock(&g_lock);
  size_t at = place_of(g_regions, address);
  if (!is_region(at, address)) {
    if (at == 0) return {};
    --at;
  }
  const Region& region = g_regions[at];
  if (address - region.base >= region.bytes) return {};
  return {region.base, region.bytes, region.context, 0};
}

bool is_lost(CUdeviceptr base) {
  if (!g_any_lost.load(std::memory_order_relaxed)) return false;
  const HoldsMutex lock(&g_lock);
  const size_t at = place_of(g_pieces, base);
  return at < g_pieces.size() && g_pieces[at].at == base && g_pieces[at].lost;
}

Token pin_region(CUdeviceptr base, const Token& fresh) {
  const HoldsMutex lock(&g_lock);
  const size_t at = place_of(g_regions, base);
  if (!is_region(at, base)) return {};
  Region& region = g_regions[at];
  if (region.token || !can_be_shared(region)) return region.token;
  region.token = fresh;
  for_pieces(region, [](size_t, Piece& piece) {
    stop_counting(piece);
    piece.pinned = true;
  });
  publish_locked();
  return region.token;
}

Range pinned_region(const Token& token, uint64_t* reserved) {
  const HoldsMutex lock(&g_lock);
  const Region* region = named(token);
  if (!region) return {};
  *reserved = region->reserved;
  return {region->base, region->bytes, region->context, 0};
}

size_t export_pieces(const Token& token, size_t first, Exported* out, size_t room) {
  const HoldsMutex lock(&g_lock);
  const Region* region = named(token);
  if (!region) return 0;
  size_t count = 0;
  bool good = true;
  for_pieces(*region, [&](size_t index, const Piece& piece) {
    if (!good || index < first || count == room) return;
    int fd = -1;
    good = g_driver.cuMemExportToShareableHandle(
               &fd, piece.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_SUCCESS;
    if (good) out[count++] = {piece.at - region->base, piece.bytes, fd};
  });
  return count;
}

CUresult wait_for_work(uint64_t context) {
  const CUresult pushed = g_driver.cuCtxPushCurrent_v2(reinterpret_cast<CUcontext>(context));
  if (pushed != CUDA_SUCCESS) return pushed;
  const CUresult result = g_driver.cuCtxSynchronize();
  CUcontext popped = nullptr;
  g_driver.cuCtxPopCurrent_v2(&popped);
  return result;
}

void publish_bytes() {
  const HoldsMutex lock(&g_lock);
  publish_locked();
}

uint64_t swappable_bytes() { return g_swappable.load(std::memory_order_relaxed); }
uint64_t swapped_bytes() {
  const HoldsMutex lock(&g_lock);
  return swapped_locked();
}
uint64_t resident_bytes() { return g_resident.load(std::memory_order_relaxed); }

CUresult map_piece(Piece* piece) {
  const CUmemAllocationProp properties = properties_of(piece->device);
  CUresult result = g_driver.cuMemCreate(&piece->handle, piece->bytes, &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  result = g_driver.cuMemMap(piece->at, piece->bytes, 0, piece->handle, 0);
  if (result == CUDA_SUCCESS) {
    const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    result = g_driver.cuMemSetAccess(piece->at, piece->bytes, &access, 1);
    if (result != CUDA_SUCCESS) g_driver.cuMemUnmap(piece->at, piece->bytes);
  }
  if (result != CUDA_SUCCESS) {
    g_driver.cuMemRelease(piece->handle);
    return result;
  }
  piece->resident = true;
  g_resident.fetch_add(piece->bytes, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult unmap_piece(Piece* piece) {
  const CUresult result = g_driver.cuMemUnmap(piece->at, piece->bytes);
  if (result != CUDA_SUCCESS) return result;
  g_driver.cuMemRelease(piece->handle);
  piece->resident = false;
  if (!piece->pinned) g_resident.fetch_sub(piece->bytes, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

void lose_piece(Piece* piece) {
  const HoldsMutex lock(&g_lock);
  give_home_back(piece->home);
  piece->home = 0;
  piece->lost = true;
  g_any_lost.store(true, std::memory_order_relaxed);
  g_swappable.fetch_sub(piece->bytes, std::memory_order_relaxed);
}

size_t piece_count() { return g_pieces.size(); }
Piece& piece(size_t index) { return g_pieces[index]; }

void forget_regions() {
  pthread_mutex_init(&g_lock, nullptr);
  g_regions.clear();
  g_pieces.clear();
  g_swappable.store(0, std::memory_order_relaxed);
  g_resident.store(0, std::memory_order_relaxed);
  g_any_lost.store(false, std::memory_order_relaxed);
}

}  // namespace tandem::shim::swap
