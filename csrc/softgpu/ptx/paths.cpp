// How the lanes of a warp diverge, reconverge, wait for each other and take turns; see warp.h.
#include <algorithm>

#include "cluster.h"
#include "control_flow.h"
#include "lanes.h"

namespace softgpu::ptx {
namespace {

// The path that the lane is on, which is the topmost one that has it; SIZE_MAX if that path cannot
// run because paths split from it are above it. Then the lane waits where they will reconverge.
size_t runnable_path_of(const Warp& warp, uint32_t lane) {
  uint32_t above = 0;
  for (size_t i = warp.paths.size(); i-- > warp.frames[warp.depth - 1].first_path;) {
    const uint32_t mask = warp.paths[i].mask;
    if ((mask >> lane & 1) != 0) return (mask & above) == 0 ? i : SIZE_MAX;
    above |= mask;
  }
  return SIZE_MAX;
}

// Joins `lanes`, which are all at `pc`, into one path. It reconverges where the innermost path that
// holds all of them waits.
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

// Makes the current path wait at `reconverge`, or drops it if it would end there anyway.
void part(Warp& warp, uint32_t reconverge) {
  Path& path = warp.paths.back();
  if (path.reconverge == reconverge) {
    warp.paths.pop_back();
  } else {
    path.pc = reconverge;
  }
}

}  // namespace

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
  release_cluster(*warp.block->cluster);
  return false;
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

bool gather(Warp& warp, const Instr& in, uint32_t pc, uint32_t active, uint32_t mask) {
  const bool names = in.flow == Flow::kSync;  // a barrier needs all lanes
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
  warp.paths[lowest].mask &= ~lanes;  // settle() drops the path later if it is empty
  chosen.mask = lanes;
  chosen.waits = false;
  warp.paths.push_back(chosen);
}

}  // namespace softgpu::ptx
