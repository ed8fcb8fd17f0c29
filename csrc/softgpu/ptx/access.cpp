#include "access.h"

#include <algorithm>

#include "cluster.h"
#include "lanes.h"

namespace softgpu::ptx {
namespace {

constexpr uint32_t kSectorShift = 5;  // 32 bytes

bool fail(Warp& warp, CUresult why) {
  warp.block->fail(why);
  return false;
}

// Whether the access is within the thread's local memory, which also holds function parameters.
bool in_own_memory(const Block& block, const Warp& warp, uint32_t lane, uint64_t at,
                   uint32_t bytes) {
  const uint64_t thread = uint64_t{warp.index} * kLanes + lane;
  const uint64_t begin =
      reinterpret_cast<uint64_t>(block.local) + thread * block.thread_local_bytes;
  return at - begin < block.thread_local_bytes && bytes <= begin + block.thread_local_bytes - at;
}

bool in_piece(uint64_t at, uint32_t bytes, const void* begin, uint64_t size) {
  const uint64_t offset = at - reinterpret_cast<uint64_t>(begin);
  return offset < size && bytes <= size - offset;
}

bool allowed(const Block& block, const Warp& warp, Space space, uint32_t lane, uint64_t at,
             uint32_t bytes) {
  switch (space) {
    case Space::kShared:
      return in_piece(at, bytes, block.shared, block.shared_bytes) ||
             holder_of(block, at, bytes) != nullptr;
    case Space::kLocal: return in_own_memory(block, warp, lane, at, bytes);
    case Space::kParam:
      return in_piece(at, bytes, block.launch->params, block.launch->kernel->params_bytes) ||
             in_own_memory(block, warp, lane, at, bytes);
    default:
      // Outside the arena the hardware checks: the guard around the kernel catches the fault.
      return !in_piece(at, 1, block.arena, block.arena_bytes) ||
             in_piece(at, bytes, block.shared, block.shared_bytes) ||
             in_piece(at, bytes, block.local, block.local_bytes) ||
             holder_of(block, at, bytes) != nullptr;
  }
}

uint64_t distinct_sectors(uint32_t mask, const uint64_t (&at)[kLanes]) {
  uint64_t sectors[kLanes];
  uint32_t count = 0;
  bool ascending = true;
  each_lane(mask, [&](uint32_t lane) {
    const uint64_t sector = at[lane] >> kSectorShift;
    if (count > 0 && sector == sectors[count - 1]) return;
    ascending = ascending && (count == 0 || sector > sectors[count - 1]);
    sectors[count++] = sector;
  });
  if (ascending) return count;
  std::sort(sectors, sectors + count);
  return static_cast<uint64_t>(std::unique(sectors, sectors + count) - sectors);
}

}  // namespace

bool locate(Warp& warp, const Instr& in, uint32_t mask, uint32_t bytes, uint64_t (&at)[kLanes]) {
  Block& block = *warp.block;
  const Space space = space_of(in);
  if (in.a == kNoSlot) {
    for (uint64_t& address : at) address = in.immediate;
  } else if ((in.mode & kNarrowBase) != 0) {
    const uint32_t* base = warp.at<uint32_t>(in.a);
    const auto displacement = static_cast<uint32_t>(in.immediate);
    for (uint32_t i = 0; i < kLanes; ++i) at[i] = base[i] + displacement;
  } else {
    const uint64_t* base = warp.at<uint64_t>(in.a);
    for (uint32_t i = 0; i < kLanes; ++i) at[i] = base[i] + in.immediate;
  }
  uint64_t low_bits = 0;
  each_lane(mask, [&](uint32_t lane) { low_bits |= at[lane]; });
  if ((low_bits & (bytes - 1)) != 0) return fail(warp, CUDA_ERROR_MISALIGNED_ADDRESS);
  if (space == Space::kShared) {
    const auto base = reinterpret_cast<uint64_t>(block.shared);
    const bool alone = block.cluster->blocks.size() == 1;
    for (uint64_t& address : at) {
      address = alone ? address + base : shared_to_generic(block, address);
    }
  }
  bool good = true;
  bool outside = false;  // outside the arena is global memory
  each_lane(mask, [&](uint32_t lane) {
    good = good && allowed(block, warp, space, lane, at[lane], bytes);
    outside = outside || !in_piece(at[lane], 1, block.arena, block.arena_bytes);
  });
  if (!good) return fail(warp, CUDA_ERROR_ILLEGAL_ADDRESS);
  if (outside && (space == Space::kGlobal || space == Space::kGeneric)) {
    block.counters.sectors += distinct_sectors(mask, at) * ((bytes + 31) >> kSectorShift);
  }
  return true;
}

}  // namespace softgpu::ptx
