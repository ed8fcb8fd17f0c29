// The loop that runs a warp, and its control flow.
#include <algorithm>
#include <cstring>

#include "control.h"
#include "lanes.h"
#include "run.h"

namespace softgpu::ptx {
namespace {

constexpr uint64_t kSlice = 10'000;         // instructions until others get their turn
constexpr uint32_t kNever = UINT32_MAX;     // no path waits there
constexpr size_t kDeepestCall = 4096;

uint32_t count(uint32_t mask) { return static_cast<uint32_t>(__builtin_popcount(mask)); }

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
    case Special::kSmid: return block.number % launch.sm_count;
    case Special::kNsmid: return launch.sm_count;
    case Special::kGridid: return launch.number;
    case Special::kDynamicShared: return launch.dynamic_shared_bytes;
    case Special::kTotalShared: return launch.kernel->shared_bytes + launch.dynamic_shared_bytes;
    case Special::kZero: return 0;
    case Special::kOne: return 1;
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

// The frame of `function` on top of the others, with the lanes of the mask in it.
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
  if (callee.results.size() != results || callee.params.size() + results != call.count) return false;
  const uint32_t* actual = caller.extra.data() + call.extra;
  for (size_t i = 0; i < call.count; ++i) {
    const Param& formal = i < results ? callee.results[i] : callee.params[i - results];
    if (actual[i] + uint64_t{formal.bytes} > caller.frame_bytes) return false;
  }
  return true;
}

// The path that has the lane now is the topmost with it. It can run, unless others above it are its
// own parts: then the lane has come to where these will meet it.
size_t runnable_path_of(const Warp& warp, uint32_t lane) {
  uint32_t above = 0;
  for (size_t i = warp.paths.size(); i-- > warp.frames[warp.depth - 1].first_path;) {
    const uint32_t mask = warp.paths[i].mask;
    if ((mask >> lane & 1) != 0) return (mask & above) == 0 ? i : SIZE_MAX;
    above |= mask;
  }
  return SIZE_MAX;
}

// One path of `lanes`, which are all at `pc`: it meets others where those of their paths would that
// hold them all.
void join(Warp& warp, uint32_t pc, uint32_t lanes) {
  uint32_t reconverge = kNever;
  for (size_t i = warp.frame().first_path; i < warp.paths.size(); ++i) {
    Path& path = warp.paths[i];
    if ((path.mask & lanes) != lanes) {
      path.mask &= ~lanes;
    } else {
      reconverge = path.pc;
    }
  }
  warp.paths.push_back({pc, reconverge, lanes});
}

// True: go on. False: another path is on top now, or a joint one. Members that can never come, as
// they wait for these lanes themselves, are not waited for.
bool gather(Warp& warp, const Instr& in, uint32_t pc, uint32_t active, uint32_t mask) {
  const bool names = in.flow == Flow::kSync;  // a barrier needs all
  const uint32_t named = names ? warp.at<uint32_t>(in.d)[__builtin_ctz(mask)] : kAllLanes;
  const uint32_t missing = named & warp.frame().live & warp.alive & ~active;
  if (missing == 0) return true;
  warp.paths.back().pc = pc;
  uint32_t here = active;
  size_t other = SIZE_MAX;
  each_lane(missing, [&](uint32_t lane) {
    const size_t found = runnable_path_of(warp, lane);
    if (found == SIZE_MAX) return;
    if (warp.paths[found].waits && warp.paths[found].pc == pc) {
      here |= warp.paths[found].mask;
    } else if (!warp.paths[found].waits) {
      other = found;
    }
  });
  if (other != SIZE_MAX) {
    warp.paths.back().waits = true;
    std::rotate(warp.paths.begin() + static_cast<ptrdiff_t>(other),
                warp.paths.begin() + static_cast<ptrdiff_t>(other) + 1, warp.paths.end());
    return false;
  }
  warp.paths.back().waits = false;
  if (here == active) return true;
  join(warp, pc, here);
  return false;
}

// A path that has run so long may be waiting for lanes which it holds up itself: those of another
// path, or those that wait where it shall meet them, say with a lock in hand. The lowest such path
// comes to the top, the others keep their order, so all get there in turn. Lanes that go on from
// where they waited meet the rest where that path would have gone next.
void give_way(Warp& warp) {
  const Frame& frame = warp.frame();
  uint32_t above = 0;
  size_t lowest = SIZE_MAX;
  uint32_t lanes = 0;
  for (size_t i = warp.paths.size(); i-- > frame.first_path;) {
    const uint32_t own = warp.paths[i].mask & ~above & frame.live & warp.alive;
    if (own != 0 && i + 1 != warp.paths.size()) {
      lowest = i;
      lanes = own;
    }
    above |= warp.paths[i].mask;
  }
  if (lowest == SIZE_MAX) return;
  Path chosen = warp.paths[lowest];
  warp.paths[lowest].mask &= ~lanes;  // an empty path is dropped in its time
  chosen.mask = lanes;
  chosen.waits = false;
  warp.paths.push_back(chosen);
}

// The function that the lanes call; through a register: that of the first, which takes along the
// lanes that call the same. The others stay in *mask's complement and call again.
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

// The next path with lanes to run, after the present one has ended or come to where it meets
// others. False: the warp has ended.
bool settle(Warp& warp) {
  for (;;) {
    const Frame& frame = warp.frame();
    while (warp.paths.size() > frame.first_path) {
      Path& path = warp.paths.back();
      path.mask &= frame.live & warp.alive;
      if (path.mask != 0 && path.pc != path.reconverge) return true;
      warp.paths.pop_back();
    }
    if (warp.depth == 1) break;
    leave(warp);
  }
  warp.state = WarpState::kDone;
  release_barriers(*warp.block);
  return false;
}

// The present path waits at `reconverge`, unless it would end there itself.
void part(Warp& warp, uint32_t reconverge) {
  Path& path = warp.paths.back();
  if (path.reconverge == reconverge) {
    warp.paths.pop_back();
  } else {
    path.pc = reconverge;
  }
}

void part_in_two(Warp& warp, const Instr& in, uint32_t next, uint32_t taken, uint32_t rest) {
  part(warp, in.reconverge);
  warp.paths.push_back({next, in.reconverge, rest});
  warp.paths.push_back({in.target, in.reconverge, taken});
}

void part_by_index(Warp& warp, const Instr& in, uint32_t next, uint32_t active, uint32_t mask) {
  const uint32_t* targets = warp.frame().function->extra.data() + in.extra;
  const uint32_t* index = warp.at<uint32_t>(in.a);
  part(warp, in.reconverge);
  if (active != mask) warp.paths.push_back({next, in.reconverge, active & ~mask});
  while (mask != 0) {
    const uint32_t which = index[__builtin_ctz(mask)];
    uint32_t same = 0;
    each_lane(mask, [&](uint32_t lane) { same |= uint32_t{index[lane] == which} << lane; });
    if (which >= targets[0]) return warp.block->fail(CUDA_ERROR_INVALID_PC);
    warp.paths.push_back({targets[1 + which], in.reconverge, same});
    mask &= ~same;
  }
}

uint32_t threads_in(const Warp& warp) { return warp.lanes != 0 ? kLanes : 0; }

// False: the warp has to wait.
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

// What follows an instruction that is not simply followed by the next one. False: stop running.
// The path on top is where to go on.
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
        // Lanes that call another function come back to this instruction.
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
    default: break;
  }
  return warp.block->error == CUDA_SUCCESS && settle(warp);
}

}  // namespace

void begin_warp(Warp& warp) {
  warp.alive = warp.lanes;
  warp.carry = 0;
  warp.state = WarpState::kReady;
  warp.depth = 0;
  warp.paths.clear();
  enter(warp, *warp.block->launch->kernel, warp.lanes, 0);
}

void release_barriers(Block& block) {
  uint32_t present = 0;
  for (const Warp& warp : block.warps) {
    present += warp.state != WarpState::kDone ? threads_in(warp) : 0;
  }
  for (uint32_t number = 0; number < 16; ++number) {
    Barrier& barrier = block.barriers[number];
    if (barrier.arrived == 0) continue;
    if (barrier.arrived < (barrier.expected != 0 ? barrier.expected : present)) continue;
    for (Warp& warp : block.warps) {
      if (warp.state != WarpState::kAtBarrier || warp.barrier != number) continue;
      give_result(warp, barrier);
      warp.state = WarpState::kReady;
    }
    barrier = {};
  }
}

void run_warp(Warp& warp) {
  Block& block = *warp.block;
  const uint64_t stop = warp.executed + kSlice;
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
      const bool meets = in.flow == Flow::kSync || in.flow == Flow::kBarrier;
      if (meets && !gather(warp, in, pc - 1, active, mask)) {
        moved = true;
        break;
      }
      if (in.run != nullptr) {
        in.run(warp, in, mask);
        flops += uint64_t{in.flops} * (mask == active ? threads : count(mask));
        if (in.flow != Flow::kMayFail) continue;
        on = block.error == CUDA_SUCCESS;
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
    if (!on && warp.executed >= stop) return give_way(warp);
  }
}

}  // namespace softgpu::ptx
