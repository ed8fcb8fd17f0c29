// The interpreter loop: runs a warp and decides where it continues after each instruction.
#include "cluster.h"
#include "control.h"
#include "control_flow.h"
#include "lanes.h"
#include "run.h"

namespace softgpu::ptx {
namespace {

constexpr uint64_t kSlice = 10'000;  // instructions before others get their turn

uint32_t count(uint32_t mask) { return static_cast<uint32_t>(__builtin_popcount(mask)); }

// Executes an instruction that may not be followed by the next one; the path on top then says where
// to continue. Returns false if the warp must stop running.
bool redirect(Warp& warp, const Instr& in, uint32_t next, uint32_t active, uint32_t mask) {
  Frame& frame = warp.frame();
  Path& path = warp.paths.back();
  path.pc = next;
  switch (in.flow) {
    case Flow::kBranch:
      if (mask == active) {
        path.pc = in.target;
      } else {
        part_in_two(warp, in, next, mask, active & ~mask);
      }
      break;
    case Flow::kBranchIndexed: part_by_index(warp, in, next, active, mask); break;
    case Flow::kCall:
      if (in.mode != 0) return call_builtin(warp, in, mask);
      if (in.a != kNoSlot) {
        // Lanes that call another function execute this instruction again.
        uint32_t same = mask;
        callee_of(warp, in, &same);
        if (same != mask) {
          path.pc = next;
          warp.paths.push_back({next - 1, next, mask & ~same});
          warp.paths.push_back({next - 1, next, same});
          return true;
        }
      }
      return call(warp, in, mask);
    case Flow::kReturn: frame.live &= ~mask; break;
    case Flow::kExit: warp.alive &= ~mask; break;
    case Flow::kTrap: warp.block->fail(CUDA_ERROR_LAUNCH_FAILED); return false;
    case Flow::kBarrier:
      if (in.mode == kArrive || mask != 0) return arrive(warp, in, mask);
      break;
    case Flow::kClusterArrive: arrive_at_cluster(warp, mask); break;
    case Flow::kClusterWait: return wait_for_cluster(warp);
    case Flow::kClock: read_clock(warp, in, mask); break;
    default: break;
  }
  return warp.block->error == CUDA_SUCCESS && settle(warp);
}

}  // namespace

void begin_warp(Warp& warp) {
  warp.alive = warp.lanes;
  warp.carry = 0;
  warp.executed = warp.slept_ns = warp.arrived_ns = 0;
  warp.at_cluster = 0;
  warp.cluster_phase = 0;
  warp.state = WarpState::kReady;
  warp.depth = 0;
  warp.paths.clear();
  enter(warp, *warp.block->launch->kernel, warp.lanes, 0);
}

void run_warp(Warp& warp) {
  Block& block = *warp.block;
  const uint64_t stop = warp.executed + kSlice;
  warp.watched = 0;
  while (warp.state == WarpState::kReady && settle(warp)) {
    Path& path = warp.paths.back();
    const Instr* code = warp.frame().function->code.data();
    const uint32_t active = path.mask, threads = count(active), reconverge = path.reconverge;
    uint32_t pc = path.pc;
    uint64_t ran = 0, flops = 0;
    bool on = true, moved = false;
    while (on && pc != reconverge) {
      const Instr& in = code[pc++];
      ++ran;
      uint32_t mask = active;
      if (in.guard != kNoSlot) {
        const uint32_t guard = *warp.at<uint32_t>(in.guard);
        mask &= in.guard_negated ? ~guard : guard;
        if (mask == 0) continue;
      }
      warp.current = &in;
      const bool meets = in.flow >= Flow::kSync && in.flow <= Flow::kClusterWait;
      if (meets && !gather(warp, in, pc - 1, active, mask)) {
        moved = true;
        break;
      }
      if (in.run != nullptr) {
        in.run(warp, in, mask);
        flops += uint64_t{in.flops} * (mask == active ? threads : count(mask));
        if (in.flow != Flow::kMayFail && in.flow != Flow::kWatch) continue;
        on = block.error == CUDA_SUCCESS;
        if (in.flow == Flow::kWatch) on = on && ++warp.watched < kPatience;
      } else if (in.flow == Flow::kBranch && mask == active) {
        pc = in.target;
        on = warp.executed + ran < stop;
      } else {
        block.counters.instructions += ran * threads;
        block.counters.flops += flops;
        warp.executed += ran;
        ran = flops = 0;
        if (!redirect(warp, in, pc, active, mask)) return;
        break;
      }
    }
    if (ran != 0) {
      block.counters.instructions += ran * threads;
      block.counters.flops += flops;
      warp.executed += ran;
      if (!moved) path.pc = pc;
    }
    if (block.error != CUDA_SUCCESS) return;
    if (!on && (warp.executed >= stop || warp.watched >= kPatience)) return give_way(warp);
  }
}

}  // namespace softgpu::ptx
