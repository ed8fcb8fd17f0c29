// bar.sync, bar.arrive and bar.red, which count threads in whole warps.
#include <algorithm>

#include "control.h"
#include "control_flow.h"
#include "lanes.h"

namespace softgpu::ptx {
namespace {

uint32_t count(uint32_t mask) { return static_cast<uint32_t>(__builtin_popcount(mask)); }

uint32_t threads_in(const Warp& warp) { return warp.lanes != 0 ? kLanes : 0; }

void give_result(Warp& warp, const Barrier& barrier) {
  const Instr& in = *warp.current;
  switch (in.mode & 7) {
    case kRedPopc: {
      uint32_t out[kLanes];
      for (uint32_t& value : out) value = barrier.trues;
      return write(warp, in.dst, out, warp.barrier_mask);
    }
    case kRedAnd:
      return write_predicate(warp, in.dst, barrier.trues == barrier.counted ? kAllLanes : 0,
                             warp.barrier_mask);
    case kRedOr:
      return write_predicate(warp, in.dst, barrier.trues != 0 ? kAllLanes : 0, warp.barrier_mask);
    default: return;
  }
}

}  // namespace

bool arrive(Warp& warp, const Instr& in, uint32_t mask) {
  Block& block = *warp.block;
  const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(mask));
  const uint32_t number = warp.at<uint32_t>(in.a)[lane];
  if (number >= 16) {
    block.fail(CUDA_ERROR_ILLEGAL_INSTRUCTION);
    return false;
  }
  Barrier& barrier = block.barriers[number];
  barrier.arrived += threads_in(warp);
  barrier.slept_ns = std::max(barrier.slept_ns, warp.slept_ns);
  if (in.b != kNoSlot) {
    barrier.expected = warp.at<uint32_t>(in.b)[lane];
    if (barrier.expected == 0 || barrier.expected % kLanes != 0) {
      block.fail(CUDA_ERROR_ILLEGAL_INSTRUCTION);
      return false;
    }
  }
  if (in.c != kNoSlot) {
    uint32_t yes = *warp.at<uint32_t>(in.c);
    if ((in.mode & kRedNegated) != 0) yes = ~yes;
    barrier.trues += count(yes & mask);
    barrier.counted += count(mask);
  }
  if (in.mode != kArrive) {
    warp.state = WarpState::kAtBarrier;
    warp.barrier = number;
    warp.barrier_mask = mask;
  }
  release_barriers(block);
  return warp.state == WarpState::kReady;
}

void release_barriers(Block& block) {
  uint32_t present = 0;
  uint64_t ended_ns = 0;  // the longest that an ended warp slept
  for (const Warp& warp : block.warps) {
    if (warp.state != WarpState::kDone) {
      present += threads_in(warp);
    } else {
      ended_ns = std::max(ended_ns, warp.slept_ns);
    }
  }
  for (uint32_t number = 0; number < 16; ++number) {
    Barrier& barrier = block.barriers[number];
    if (barrier.arrived == 0) continue;
    if (barrier.arrived < (barrier.expected != 0 ? barrier.expected : present)) continue;
    // The warp that slept longest came last; a barrier of all threads waited for ended warps, too.
    const uint64_t slept_ns =
        barrier.expected != 0 ? barrier.slept_ns : std::max(barrier.slept_ns, ended_ns);
    for (Warp& warp : block.warps) {
      if (warp.state != WarpState::kAtBarrier || warp.barrier != number) continue;
      warp.slept_ns = slept_ns;
      give_result(warp, barrier);
      warp.state = WarpState::kReady;
    }
    barrier = {};
  }
}

}  // namespace softgpu::ptx
