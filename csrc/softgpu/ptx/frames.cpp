// Calls: initialises a function's registers and copies its parameters and results.
#include <cstring>

#include "control_flow.h"
#include "lanes.h"

namespace softgpu::ptx {
namespace {

constexpr size_t kDeepestCall = 4096;

template <class T>
void fill(Warp& warp, uint32_t offset, uint64_t value) {
  T* to = warp.at<T>(offset);
  for (uint32_t i = 0; i < kLanes; ++i) to[i] = static_cast<T>(value);
}

void fill_constants(Warp& warp, const Function& function) {
  for (const Constant& constant : function.constants) {
    switch (constant.bytes) {
      case 1: fill<uint8_t>(warp, constant.offset, constant.low); break;
      case 2: fill<uint16_t>(warp, constant.offset, constant.low); break;
      case 4: fill<uint32_t>(warp, constant.offset, constant.low); break;
      case 8: fill<uint64_t>(warp, constant.offset, constant.low); break;
      default:
        for (uint32_t i = 0; i < kLanes; ++i) {
          const uint64_t both[2] = {constant.low, constant.high};
          memcpy(warp.at<char>(constant.offset) + 16 * i, both, sizeof both);
        }
    }
  }
}

uint64_t special_value(const Warp& warp, Special which, uint32_t lane) {
  const Block& block = *warp.block;
  const Launch& launch = *block.launch;
  const uint32_t thread = warp.index * kLanes + lane;
  switch (which) {
    case Special::kTidX: return thread % launch.block[0];
    case Special::kTidY: return thread / launch.block[0] % launch.block[1];
    case Special::kTidZ: return thread / (launch.block[0] * launch.block[1]);
    case Special::kNtidX: return launch.block[0];
    case Special::kNtidY: return launch.block[1];
    case Special::kNtidZ: return launch.block[2];
    case Special::kCtaidX: return block.index[0];
    case Special::kCtaidY: return block.index[1];
    case Special::kCtaidZ: return block.index[2];
    case Special::kNctaidX: return launch.grid[0];
    case Special::kNctaidY: return launch.grid[1];
    case Special::kNctaidZ: return launch.grid[2];
    case Special::kLaneid: return lane;
    case Special::kWarpid: return warp.index;
    case Special::kNwarpid: return 64;
    case Special::kMaskEq: return 1u << lane;
    case Special::kMaskLt: return (1u << lane) - 1;
    case Special::kMaskLe: return (2u << lane) - 1;
    case Special::kMaskGt: return ~((2u << lane) - 1);
    case Special::kMaskGe: return ~((1u << lane) - 1);
    case Special::kSmid: {
      const auto nth = static_cast<uint32_t>(block.number % launch.sm_count);
      return launch.sms ? launch.sms[nth] : nth;
    }
    case Special::kNsmid: return launch.sm_count;
    case Special::kGridid: return launch.number;
    case Special::kWorkspaceLow: return reinterpret_cast<uint64_t>(block.workspace);
    case Special::kWorkspaceHigh: return reinterpret_cast<uint64_t>(block.workspace) >> 32;
    case Special::kDynamicShared: return launch.dynamic_shared_bytes;
    case Special::kTotalShared: return launch.kernel->shared_bytes + launch.dynamic_shared_bytes;
    case Special::kZero: return 0;
    case Special::kClusterX: return block.index[0] / launch.cluster[0];
    case Special::kClusterY: return block.index[1] / launch.cluster[1];
    case Special::kClusterZ: return block.index[2] / launch.cluster[2];
    case Special::kNclusterX: return launch.grid[0] / launch.cluster[0];
    case Special::kNclusterY: return launch.grid[1] / launch.cluster[1];
    case Special::kNclusterZ: return launch.grid[2] / launch.cluster[2];
    case Special::kClusterCtaidX: return block.index[0] % launch.cluster[0];
    case Special::kClusterCtaidY: return block.index[1] % launch.cluster[1];
    case Special::kClusterCtaidZ: return block.index[2] % launch.cluster[2];
    case Special::kClusterNctaidX: return launch.cluster[0];
    case Special::kClusterNctaidY: return launch.cluster[1];
    case Special::kClusterNctaidZ: return launch.cluster[2];
    case Special::kClusterRank: return block.rank;
    case Special::kClusterSize:
      return uint64_t{launch.cluster[0]} * launch.cluster[1] * launch.cluster[2];
    case Special::kFrame:
      return reinterpret_cast<uint64_t>(block.local) + thread * block.thread_local_bytes +
             warp.frames[warp.depth - 1].local_offset;
    case Special::kParams: return reinterpret_cast<uint64_t>(launch.params);
  }
  return 0;
}

void fill_specials(Warp& warp, const Function& function) {
  for (const SpecialSlot& slot : function.specials) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint64_t value = special_value(warp, slot.which, lane);
      if (slot.wide) {
        warp.at<uint64_t>(slot.offset)[lane] = value;
      } else {
        warp.at<uint32_t>(slot.offset)[lane] = static_cast<uint32_t>(value);
      }
    }
  }
}

char* local_memory(const Warp& warp, uint32_t lane, uint64_t offset) {
  const uint64_t thread = uint64_t{warp.index} * kLanes + lane;
  return warp.block->local + thread * warp.block->thread_local_bytes + offset;
}

void copy_params(Warp& warp, const Frame& caller, const Frame& callee, bool back) {
  const Instr& call = *callee.call;
  const uint32_t* actual = caller.function->extra.data() + call.extra + (back ? 0 : call.dst);
  const auto& formal = back ? callee.function->results : callee.function->params;
  for (size_t i = 0; i < formal.size(); ++i) {
    each_lane(callee.call_mask & warp.alive, [&](uint32_t lane) {
      char* outer = local_memory(warp, lane, caller.local_offset + actual[i]);
      char* inner = local_memory(warp, lane, callee.local_offset + formal[i].offset);
      memcpy(back ? outer : inner, back ? inner : outer, formal[i].bytes);
    });
  }
}

bool fits(const Instr& call, const Function& caller, const Function& callee) {
  const size_t results = call.dst;
  if (callee.results.size() != results || callee.params.size() + results != call.count)
    return false;
  const uint32_t* actual = caller.extra.data() + call.extra;
  for (size_t i = 0; i < call.count; ++i) {
    const Param& formal = i < results ? callee.results[i] : callee.params[i - results];
    if (actual[i] + uint64_t{formal.bytes} > caller.frame_bytes) return false;
  }
  return true;
}

}  // namespace

void enter(Warp& warp, const Function& function, uint32_t mask, uint64_t local_offset) {
  if (warp.depth == warp.frames.size()) warp.frames.emplace_back();
  Frame& frame = warp.frames[warp.depth++];
  if (frame.capacity < function.register_bytes) {
    frame.storage = std::make_unique<char[]>(function.register_bytes + 64);
    const auto begin = reinterpret_cast<uintptr_t>(frame.storage.get());
    frame.registers = frame.storage.get() + (64 - begin % 64) % 64;
    frame.capacity = function.register_bytes;
    frame.prepared = nullptr;
  }
  frame.function = &function;
  frame.live = mask;
  frame.first_path = warp.paths.size();
  frame.local_offset = local_offset;
  warp.registers = frame.registers;
  if (frame.prepared != &function) fill_constants(warp, function);
  frame.prepared = &function;
  fill_specials(warp, function);
  warp.paths.push_back({0, kNever, mask});
}

const Function* callee_of(Warp& warp, const Instr& in, uint32_t* mask) {
  uint64_t address = in.immediate;
  if (in.a != kNoSlot) {
    const uint64_t* addresses = warp.at<uint64_t>(in.a);
    address = addresses[__builtin_ctz(*mask)];
    uint32_t same = 0;
    each_lane(*mask, [&](uint32_t lane) { same |= uint32_t{addresses[lane] == address} << lane; });
    *mask = same;
    for (const auto& [name, function] : warp.block->launch->program->functions) {
      if (reinterpret_cast<uint64_t>(function.get()) == address && !function->is_entry &&
          fits(in, *warp.frame().function, *function)) {
        return function.get();
      }
    }
    return nullptr;
  }
  return reinterpret_cast<const Function*>(address);
}

bool call(Warp& warp, const Instr& in, uint32_t mask) {
  Block& block = *warp.block;
  const Function* callee = callee_of(warp, in, &mask);
  if (callee == nullptr) {
    block.fail(CUDA_ERROR_INVALID_PC);
    return false;
  }
  const uint64_t offset = warp.frame().local_offset + warp.frame().function->frame_bytes;
  if (offset + callee->frame_bytes > block.thread_local_bytes || warp.depth >= kDeepestCall) {
    block.fail(CUDA_ERROR_HARDWARE_STACK_ERROR);
    return false;
  }
  enter(warp, *callee, mask, offset);
  Frame& frame = warp.frame();
  frame.call = &in;
  frame.call_mask = mask;
  copy_params(warp, warp.frames[warp.depth - 2], frame, false);
  return true;
}

void leave(Warp& warp) {
  const Frame& callee = warp.frame();
  Frame& caller = warp.frames[warp.depth - 2];
  copy_params(warp, caller, callee, true);
  --warp.depth;
  warp.registers = caller.registers;
}

}  // namespace softgpu::ptx
