// Atomic operations. One thread runs all blocks of a kernel, but other processes may share the
// memory, so words of up to 64 bits are changed by the CPU's own atomic instructions.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "access.h"
#include "half.h"
#include "lanes.h"
#include "ops.h"

namespace softgpu::ptx {
namespace {

struct Quad {
  uint64_t low, high;
};

// Each returns the word's new value: a is the old value, stored as U; b and c are the operands.
struct AtomicAnd {
  template <class U> static U apply(U a, U b, U) { return a & b; }
};
struct AtomicOr {
  template <class U> static U apply(U a, U b, U) { return a | b; }
};
struct AtomicXor {
  template <class U> static U apply(U a, U b, U) { return a ^ b; }
};
struct AtomicExchange {
  template <class U> static U apply(U, U b, U) { return b; }
};
struct AtomicCas {
  template <class U> static U apply(U a, U b, U c) { return a == b ? c : a; }
};
struct AtomicAdd {
  template <class U> static U apply(U a, U b, U) { return static_cast<U>(a + b); }
};
struct AtomicInc {
  template <class U> static U apply(U a, U b, U) { return a >= b ? 0 : a + 1; }
};
struct AtomicDec {
  template <class U> static U apply(U a, U b, U) { return a == 0 || a > b ? b : a - 1; }
};
template <class T>
struct AtomicMin {
  template <class U> static U apply(U a, U b, U) {
    return static_cast<T>(b) < static_cast<T>(a) ? b : a;
  }
};
template <class T>
struct AtomicMax {
  template <class U> static U apply(U a, U b, U) {
    return static_cast<T>(a) < static_cast<T>(b) ? b : a;
  }
};
template <class F>
struct AtomicFloatAdd {
  template <class U> static U apply(U a, U b, U) {
    return bits_as<U>(bits_as<F>(a) + bits_as<F>(b));
  }
};
struct AtomicHalfAdd {
  static uint16_t apply(uint16_t a, uint16_t b, uint16_t) {
    return to_half(double{half_to_float(a)} + half_to_float(b));
  }
};
struct AtomicBfloatAdd {
  static uint16_t apply(uint16_t a, uint16_t b, uint16_t) {
    return to_bfloat(double{bfloat_to_float(a)} + bfloat_to_float(b));
  }
};
template <class Op>
struct AtomicPair {
  static uint32_t apply(uint32_t a, uint32_t b, uint32_t) {
    const auto low = Op::apply(static_cast<uint16_t>(a), static_cast<uint16_t>(b), 0);
    const auto high = Op::apply(static_cast<uint16_t>(a >> 16), static_cast<uint16_t>(b >> 16), 0);
    return static_cast<uint32_t>(high) << 16 | low;
  }
};

template <class U, class Op>
U change(uint64_t address, U b, U c) {
  U* word = reinterpret_cast<U*>(address);
  U old = __atomic_load_n(word, __ATOMIC_RELAXED);
  // Sequentially consistent, the strongest order that .sem can ask for.
  while (!__atomic_compare_exchange_n(word, &old, Op::apply(old, b, c), false, __ATOMIC_SEQ_CST,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}

template <class U, class Op>
void atomic(Warp& warp, const Instr& in, uint32_t mask) {
  uint64_t at[kLanes];
  if (!locate(warp, in, mask, sizeof(U), at)) return;
  const U* b = warp.at<U>(in.b);
  const U* c = warp.at<U>(in.c);
  U* to = warp.at<U>(in.dst);
  bool changed = false;
  each_lane(mask, [&](uint32_t lane) {
    const U old = change<U, Op>(at[lane], b[lane], c[lane]);
    changed = changed || Op::apply(old, b[lane], c[lane]) != old;
    to[lane] = old;
  });
  if (changed) warp.watched = 0;
}

template <bool kCompares>
void atomic_quad(Warp& warp, const Instr& in, uint32_t mask) {
  uint64_t at[kLanes];
  if (!locate(warp, in, mask, sizeof(Quad), at)) return;
  const Quad* b = warp.at<Quad>(in.b);
  const Quad* c = warp.at<Quad>(in.c);
  Quad* to = warp.at<Quad>(in.dst);
  each_lane(mask, [&](uint32_t lane) {
    Quad old;
    void* word = reinterpret_cast<void*>(at[lane]);
    memcpy(&old, word, sizeof old);
    const bool equal = old.low == b[lane].low && old.high == b[lane].high;
    if (!kCompares || equal) memcpy(word, kCompares ? &c[lane] : &b[lane], sizeof old);
    to[lane] = old;
  });
}

template <class Op>
Handler by_width(Type type) {
  if (bytes_of(type) == 4) return atomic<uint32_t, Op>;
  return bytes_of(type) == 8 ? atomic<uint64_t, Op> : nullptr;
}

template <template <class> class Op>
Handler by_order(Type type) {
  switch (type) {
    case Type::kU32: return atomic<uint32_t, Op<uint32_t>>;
    case Type::kS32: return atomic<uint32_t, Op<int32_t>>;
    case Type::kU64: return atomic<uint64_t, Op<uint64_t>>;
    case Type::kS64: return atomic<uint64_t, Op<int64_t>>;
    default: return nullptr;
  }
}

Handler addition(Type type) {
  switch (type) {
    case Type::kF32: return atomic<uint32_t, AtomicFloatAdd<float>>;
    case Type::kF64: return atomic<uint64_t, AtomicFloatAdd<double>>;
    case Type::kF16: return atomic<uint16_t, AtomicHalfAdd>;
    case Type::kBf16: return atomic<uint16_t, AtomicBfloatAdd>;
    case Type::kF16x2: return atomic<uint32_t, AtomicPair<AtomicHalfAdd>>;
    case Type::kBf16x2: return atomic<uint32_t, AtomicPair<AtomicBfloatAdd>>;
    default: return is_integer(type) ? by_width<AtomicAdd>(type) : nullptr;
  }
}

Handler take_operation(Decode& d, Type type) {
  if (d.take("add")) {
    d.take("noftz");
    if (is_float(type)) d.out.flops = 1;
    if (type == Type::kF16x2 || type == Type::kBf16x2) d.out.flops = 2;
    return addition(type);
  }
  if (d.take("and")) return by_width<AtomicAnd>(type);
  if (d.take("or")) return by_width<AtomicOr>(type);
  if (d.take("xor")) return by_width<AtomicXor>(type);
  if (d.take("exch")) {
    return type == Type::kB128 ? atomic_quad<false> : by_width<AtomicExchange>(type);
  }
  if (d.take("inc")) return type == Type::kU32 ? atomic<uint32_t, AtomicInc> : nullptr;
  if (d.take("dec")) return type == Type::kU32 ? atomic<uint32_t, AtomicDec> : nullptr;
  if (d.take("min")) return by_order<AtomicMin>(type);
  if (d.take("max")) return by_order<AtomicMax>(type);
  if (!d.take("cas")) return nullptr;
  if (type == Type::kB16) return atomic<uint16_t, AtomicCas>;
  return type == Type::kB128 ? atomic_quad<true> : by_width<AtomicCas>(type);
}

void decode_atomic(Decode& d, bool has_result) {
  const Space space = take_space(d);
  const bool compares =
      std::find(d.from.modifiers.begin(), d.from.modifiers.end(), "cas") != d.from.modifiers.end();
  const bool hint = take_cache_words(d);
  const Type type = d.type();
  if (space != Space::kGeneric && space != Space::kGlobal && space != Space::kShared) {
    d.fail("does not exist for this state space");
  }
  size_t next = 0;
  d.out.dst = has_result ? d.destination(next++, type) : d.builder.sink();
  d.address(next++, space);
  d.out.mode |= static_cast<uint8_t>(static_cast<uint8_t>(space) << kSpaceShift);
  d.out.b = d.out.c = d.source(next++, type);
  if (compares) d.out.c = d.source(next++, type);
  if (hint) d.source(next, Type::kB64);
  d.out.flow = space == Space::kShared ? Flow::kMayFail : Flow::kWatch;
  d.set(take_operation(d, type));
}

}  // namespace

void decode_atom(Decode& d) { decode_atomic(d, true); }
void decode_red(Decode& d) { decode_atomic(d, false); }

}  // namespace softgpu::ptx
