// How the instructions of ops_control.cpp describe themselves to the loop in run_warp.cpp.
#pragma once

#include <cstdint>
#include <string_view>

namespace softgpu::ptx {

// kCall. immediate: the Function, unless `a` holds it. extra: offsets in the frame of the results,
// then of the arguments; dst: how many of them are results. mode: a function of ours, if any.
enum class Builtin : uint8_t { kNone, kPrintf, kAssertFail, kMalloc, kFree };
inline Builtin builtin_named(std::string_view name) {
  if (name == "vprintf") return Builtin::kPrintf;
  if (name == "__assertfail") return Builtin::kAssertFail;
  if (name == "malloc") return Builtin::kMalloc;
  return name == "free" ? Builtin::kFree : Builtin::kNone;
}

// kClock. mode: which; immediate: bytes of the result.
enum Clock : uint8_t { kCycles, kCyclesHigh, kNanoseconds, kNanosecondsHigh };

// kBarrier. a: number, b: threads or none, c: predicate of .red; dst: its result.
enum BarrierMode : uint8_t { kSync, kArrive, kRedPopc, kRedAnd, kRedOr, kRedNegated = 8 };

}  // namespace softgpu::ptx
