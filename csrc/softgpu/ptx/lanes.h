// The loops over a warp's lanes that every instruction is built from. They compute results for all
// lanes but store only those in the mask, which lets the compiler vectorise them. Therefore an
// operation must not trap on any input.
#pragma once

#include <cstring>

#include "warp.h"

namespace softgpu::ptx {

template <class T>
inline void write(const Warp& warp, uint32_t offset, const T (&values)[kLanes], uint32_t mask) {
  T* to = warp.at<T>(offset);
  if (mask == kAllLanes) {
    memcpy(to, values, sizeof values);
    return;
  }
  for (uint32_t i = 0; i < kLanes; ++i) to[i] = (mask >> i & 1) != 0 ? values[i] : to[i];
}

inline void write_predicate(const Warp& warp, uint32_t offset, uint32_t values, uint32_t mask) {
  if (offset == kNoSlot) return;
  uint32_t* to = warp.at<uint32_t>(offset);
  *to = (*to & ~mask) | (values & mask);
}

template <class Op, class R, class A>
void lanes1(Warp& warp, const Instr& in, uint32_t mask) {
  const A* a = warp.at<A>(in.a);
  R out[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) out[i] = Op::apply(a[i]);
  write(warp, in.dst, out, mask);
}

template <class Op, class R, class A, class B = A>
void lanes2(Warp& warp, const Instr& in, uint32_t mask) {
  const A* a = warp.at<A>(in.a);
  const B* b = warp.at<B>(in.b);
  R out[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) out[i] = Op::apply(a[i], b[i]);
  write(warp, in.dst, out, mask);
}

template <class Op, class R, class A, class B = A, class C = A>
void lanes3(Warp& warp, const Instr& in, uint32_t mask) {
  const A* a = warp.at<A>(in.a);
  const B* b = warp.at<B>(in.b);
  const C* c = warp.at<C>(in.c);
  R out[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) out[i] = Op::apply(a[i], b[i], c[i]);
  write(warp, in.dst, out, mask);
}

// Calls visit(lane) for each lane in the mask, one after another.
template <class Visit>
inline void each_lane(uint32_t mask, Visit visit) {
  for (; mask != 0; mask &= mask - 1) visit(static_cast<uint32_t>(__builtin_ctz(mask)));
}

}  // namespace softgpu::ptx
