// The parts of the interpreter loop in run_warp.cpp: a warp's frames, paths and barriers.
#pragma once

#include "warp.h"

namespace softgpu::ptx {

inline constexpr uint32_t kNever = UINT32_MAX;  // Path::reconverge of a path that meets no other

// frames.cpp

// Pushes a frame for `function`, with the lanes of the mask in it.
void enter(Warp& warp, const Function& function, uint32_t mask, uint64_t local_offset);
// Pops the frame and copies the results to the caller.
void leave(Warp& warp);
// The function that the lanes call. A call through a register takes the first lane's function and
// reduces *mask to the lanes that call the same one; the others execute the call again.
const Function* callee_of(Warp& warp, const Instr& in, uint32_t* mask);
// Calls the function. Returns false and sets the block's error if it cannot be called.
bool call(Warp& warp, const Instr& in, uint32_t mask);

// paths.cpp

// Selects the next path that has lanes to run, after the current one has ended or reached its
// reconvergence point. Returns false if the warp has ended.
bool settle(Warp& warp);
void part_in_two(Warp& warp, const Instr& in, uint32_t next, uint32_t taken, uint32_t rest);
void part_by_index(Warp& warp, const Instr& in, uint32_t next, uint32_t active, uint32_t mask);
// Collects the lanes that an instruction waits for. True: all are here, execute it. False: another
// path is on top now, or one that joins the collected lanes. Does not wait for lanes that can never
// arrive because they themselves wait for these lanes.
bool gather(Warp& warp, const Instr& in, uint32_t pc, uint32_t active, uint32_t mask);
// Lets another path run. A path that has used up the warp's turn may be spinning on lanes that it
// holds up itself: lanes of another path, or lanes that wait for it at its reconvergence point, say
// holding a lock. The lowest path with such lanes moves to the top and the others keep their order,
// so each gets its turn. Lanes that leave a reconvergence point early meet the rest at the next
// outer one.
void give_way(Warp& warp);

// ops_move.cpp

void read_clock(Warp& warp, const Instr& in, uint32_t mask);

// barriers.cpp

// Arrives at a barrier. Returns false if the warp has to wait.
bool arrive(Warp& warp, const Instr& in, uint32_t mask);
// Called when a warp has arrived at a barrier or ended; releases the barriers now complete.
void release_barriers(Block& block);

}  // namespace softgpu::ptx
