// The pieces of run_warp.cpp: frames, paths and barriers of a warp.
#pragma once

#include "warp.h"

namespace softgpu::ptx {

inline constexpr uint32_t kNever = UINT32_MAX;  // no path waits there

// frames.cpp

// The frame of `function` on top of the others, with the lanes of the mask in it.
void enter(Warp& warp, const Function& function, uint32_t mask, uint64_t local_offset);
// Back to the caller, with the results.
void leave(Warp& warp);
// The function that the lanes call; through a register: that of the first, which takes along the
// lanes that call the same. The others stay in *mask's complement and call again.
const Function* callee_of(Warp& warp, const Instr& in, uint32_t* mask);
// False: it cannot be called.
bool call(Warp& warp, const Instr& in, uint32_t mask);

// paths.cpp

// The next path with lanes to run, after the present one has ended or come to where it meets
// others. False: the warp has ended.
bool settle(Warp& warp);
void part_in_two(Warp& warp, const Instr& in, uint32_t next, uint32_t taken, uint32_t rest);
void part_by_index(Warp& warp, const Instr& in, uint32_t next, uint32_t active, uint32_t mask);
// True: go on. False: another path is on top now, or a joint one. Members that can never come, as
// they wait for these lanes themselves, are not waited for.
bool gather(Warp& warp, const Instr& in, uint32_t pc, uint32_t active, uint32_t mask);
// A path that has run so long may be waiting for lanes which it holds up itself: those of another
// path, or those that wait where it shall meet them, say with a lock in hand. The lowest such path
// comes to the top, the others keep their order, so all get there in turn. Lanes that go on from
// where they waited meet the rest where that path would have gone next.
void give_way(Warp& warp);

// ops_move.cpp

void read_clock(Warp& warp, const Instr& in, uint32_t mask);

// barriers.cpp

// False: the warp has to wait.
bool arrive(Warp& warp, const Instr& in, uint32_t mask);
// A warp has come to a barrier or ended: lets go who has waited for that.
void release_barriers(Block& block);

}  // namespace softgpu::ptx
