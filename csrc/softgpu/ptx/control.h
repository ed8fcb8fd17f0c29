// How the decoders in ops_control.cpp encode instructions for the interpreter loop in run_warp.cpp.
#pragma once

#include <cstdint>
#include <string_view>

namespace softgpu::ptx {

// kCall. immediate: the Function, unless register `a` holds it. extra: frame offsets of results,
// then of arguments; dst: how many of these are results. mode: the Builtin, if it is one.
enum class Builtin : uint8_t { kNone, kPrintf, kAssertFail, kMalloc, kFree };
inline Builtin builtin_named(std::string_view name) {
  if (name == "vprintf") return Builtin::kPrintf;
  if (name == "__assertfail") return Builtin::kAssertFail;
  if (name == "malloc") return Builtin::kMalloc;
  return name == "free" ? Builtin::kFree : Builtin::kNone;
}

// kClock. mode: which clock; immediate: size of the result in bytes.
enum Clock : uint8_t { kCycles, kCyclesHigh, kNanoseconds, kNanosecondsHigh };

// kBarrier. a: barrier number, b: thread count if given, c: predicate of .red; dst: result of .red.
enum BarrierMode : uint8_t { kSync, kArrive, kRedPopc, kRedAnd, kRedOr, kRedNegated = 8 };

}  // namespace softgpu::ptx
