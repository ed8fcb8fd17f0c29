// Integer arithmetic without carry. Where PTX leaves a result undefined (division by zero), it is
// all ones, as on GPUs.
#include <limits>
#include <type_traits>

#include "lanes.h"
#include "ops.h"
#include "pick.h"

namespace softgpu::ptx {
namespace {

__extension__ using Wide = __int128;
__extension__ using UnsignedWide = unsigned __int128;

// Twice the width, same signedness.
template <class T> struct Doubled;
template <> struct Doubled<uint16_t> {
  using Type = uint32_t;
};
template <> struct Doubled<int16_t> {
  using Type = int32_t;
};
template <> struct Doubled<uint32_t> {
  using Type = uint64_t;
};
template <> struct Doubled<int32_t> {
  using Type = int64_t;
};
template <> struct Doubled<uint64_t> {
  using Type = UnsignedWide;
};
template <> struct Doubled<int64_t> {
  using Type = Wide;
};
template <class T> using Twice = typename Doubled<T>::Type;

// Unsigned and at least as wide as int, so it wraps without being promoted to a signed type.
template <class T>
using Modular = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
Modular<T> modular(T value) {
  return static_cast<Modular<T>>(value);
}

struct Add {
  template <class T> static T apply(T a, T b) { return static_cast<T>(modular(a) + modular(b)); }
};
struct Sub {
  template <class T> static T apply(T a, T b) { return static_cast<T>(modular(a) - modular(b)); }
};
template <class Op>
struct Saturated {  // s32
  static int32_t apply(int32_t a, int32_t b) {
    const int64_t exact = Op::apply(int64_t{a}, int64_t{b});
    return static_cast<int32_t>(exact > INT32_MAX   ? INT32_MAX
                                : exact < INT32_MIN ? INT32_MIN
                                                    : exact);
  }
};
struct MulLo {
  template <class T> static T apply(T a, T b) { return static_cast<T>(modular(a) * modular(b)); }
};
struct MulHi {
  template <class T> static T apply(T a, T b) {
    return static_cast<T>((static_cast<Twice<T>>(a) * static_cast<Twice<T>>(b)) >> (8 * sizeof(T)));
  }
};
struct MulWide {
  template <class T> static Twice<T> apply(T a, T b) {
    return static_cast<Twice<T>>(static_cast<Twice<T>>(a) * static_cast<Twice<T>>(b));
  }
};
template <class Mul>
struct Mad {
  template <class T, class C> static C apply(T a, T b, C c) {
    return static_cast<C>(modular(static_cast<C>(Mul::apply(a, b))) + modular(c));
  }
};
struct MadHiSat {
  static int32_t apply(int32_t a, int32_t b, int32_t c) {
    return Saturated<Add>::apply(MulHi::apply(a, b), c);
  }
};
template <bool kHigh>
struct Mul24 {
  template <class T> static T apply(T a, T b) {
    const int64_t x = std::is_signed<T>::value ? static_cast<int32_t>(modular(a) << 8) >> 8
                                               : static_cast<int64_t>(a & 0xffffff);
    const int64_t y = std::is_signed<T>::value ? static_cast<int32_t>(modular(b) << 8) >> 8
                                               : static_cast<int64_t>(b & 0xffffff);
    return static_cast<T>(kHigh ? (x * y) >> 16 : x * y);
  }
};
struct Mad24HiSat {
  static int32_t apply(int32_t a, int32_t b, int32_t c) {
    return Saturated<Add>::apply(Mul24<true>::apply(a, b), c);
  }
};
struct Sad {
  template <class T> static T apply(T a, T b, T c) {
    return Add::apply(c, a < b ? Sub::apply(b, a) : Sub::apply(a, b));
  }
};
struct Div {
  template <class T> static T apply(T a, T b) {
    if (b == 0) return static_cast<T>(~T{0});
    if (std::is_signed<T>::value && b == static_cast<T>(-1)) return Sub::apply(T{0}, a);
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T> static T apply(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed<T>::value && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct Min {
  template <class T> static T apply(T a, T b) { return a < b ? a : b; }
};
struct Max {
  template <class T> static T apply(T a, T b) { return a < b ? b : a; }
};
struct Abs {
  template <class T> static T apply(T a) { return a < 0 ? Sub::apply(T{0}, a) : a; }
};
struct Neg {
  template <class T> static T apply(T a) { return Sub::apply(T{0}, a); }
};
template <class Op>
struct Relu {
  template <class T> static T apply(T a, T b) { return Max::apply(Op::apply(a, b), T{0}); }
};
template <class Op, class Half>
struct Pair {  // two 16-bit values in one register
  static uint32_t apply(uint32_t a, uint32_t b) {
    const auto low = Op::apply(static_cast<Half>(a), static_cast<Half>(b));
    const auto high = Op::apply(static_cast<Half>(a >> 16), static_cast<Half>(b >> 16));
    return static_cast<uint32_t>(static_cast<uint16_t>(high)) << 16 | static_cast<uint16_t>(low);
  }
};

template <class Op>
Handler binary(Type type) {
  return pick_integer(type, [](auto t) -> Handler { return lanes2<Op, decltype(t), decltype(t)>; });
}
template <class Op>
Handler paired(Type type) {
  if (type == Type::kU16x2) return lanes2<Pair<Op, uint16_t>, uint32_t, uint32_t>;
  return type == Type::kS16x2 ? lanes2<Pair<Op, int16_t>, uint32_t, uint32_t> : nullptr;
}

void operands(Decode& d, Type type, size_t sources) {
  d.out.dst = d.destination(0, type);
  d.out.a = d.source(1, type);
  if (sources > 1) d.out.b = d.source(2, type);
  if (sources > 2) d.out.c = d.source(3, type);
}

// Decodes the instruction elsewhere if its type is not a plain integer; returns whether it did.
bool elsewhere(Decode& d, Type type) {
  if (is_half(type)) {
    decode_half(d, type);
  } else if (is_float(type)) {
    decode_float(d, type);
  } else {
    return false;
  }
  return true;
}

template <class Op>
void decode_sum(Decode& d, void (*with_carry)(Decode&, Type, bool, bool)) {
  const Type type = d.type();
  if (elsewhere(d, type)) return;
  if (d.take("cc")) return with_carry(d, type, false, true);
  operands(d, type, 2);
  if (d.take("sat")) {
    return d.set(type == Type::kS32 ? lanes2<Saturated<Op>, int32_t, int32_t> : nullptr);
  }
  d.set(bytes_of(type) == 4 && !is_integer(type) ? paired<Op>(type) : binary<Op>(type));
}

template <class Op>
void decode_extreme(Decode& d) {
  const Type type = d.type();
  if (elsewhere(d, type)) return;
  operands(d, type, 2);
  const bool pair = type == Type::kU16x2 || type == Type::kS16x2;
  if (d.take("relu")) {
    if (type == Type::kS16x2) return d.set(paired<Relu<Op>>(type));
    return d.set(type == Type::kS32 ? binary<Relu<Op>>(type) : nullptr);
  }
  d.set(pair ? paired<Op>(type) : binary<Op>(type));
}

template <class Op>
void decode_unary(Decode& d) {
  const Type type = d.type();
  if (elsewhere(d, type)) return;
  if (!is_signed(type)) d.fail("does not exist for this type");
  operands(d, type, 1);
  d.set(pick_integer(type, [](auto t) -> Handler { return lanes1<Op, decltype(t), decltype(t)>; }));
}

template <class Op>
void decode_quotient(Decode& d) {
  const Type type = d.type();
  if (elsewhere(d, type)) return;
  operands(d, type, 2);
  d.set(binary<Op>(type));
}

Type doubled(Decode& d, Type type) {
  switch (type) {
    case Type::kU16: return Type::kU32;
    case Type::kS16: return Type::kS32;
    case Type::kU32: return Type::kU64;
    case Type::kS32: return Type::kS64;
    default: d.fail("does not exist for this type");
  }
}

template <class Make>
Handler pick_narrow(Type type, Make make) {  // 16 and 32 bits, whose width can be doubled
  switch (type) {
    case Type::kU16: return make(uint16_t{});
    case Type::kS16: return make(int16_t{});
    case Type::kU32: return make(uint32_t{});
    default: return make(int32_t{});
  }
}

}  // namespace

void decode_add(Decode& d) { decode_sum<Add>(d, decode_carry_add); }
void decode_sub(Decode& d) { decode_sum<Sub>(d, decode_carry_sub); }
void decode_min(Decode& d) { decode_extreme<Min>(d); }
void decode_max(Decode& d) { decode_extreme<Max>(d); }
void decode_abs(Decode& d) { decode_unary<Abs>(d); }
void decode_neg(Decode& d) { decode_unary<Neg>(d); }
void decode_div(Decode& d) { decode_quotient<Div>(d); }

void decode_rem(Decode& d) {
  const Type type = d.type();
  operands(d, type, 2);
  d.set(binary<Rem>(type));
}

void decode_mul(Decode& d) {
  const Type type = d.type();
  if (elsewhere(d, type)) return;
  if (d.take("wide")) {
    d.out.dst = d.destination(0, doubled(d, type));
    d.out.a = d.source(1, type);
    d.out.b = d.source(2, type);
    return d.set(pick_narrow(
        type, [](auto t) -> Handler { return lanes2<MulWide, Twice<decltype(t)>, decltype(t)>; }));
  }
  operands(d, type, 2);
  if (d.take("hi")) return d.set(binary<MulHi>(type));
  if (!d.take("lo")) d.fail("needs .hi, .lo or .wide");
  d.set(binary<MulLo>(type));
}

void decode_mad(Decode& d) {
  const Type type = d.type();
  if (is_float(type)) return decode_float(d, type);
  if (d.take("cc")) return decode_carry_mad(d, type, false, true);
  if (d.take("wide")) {
    d.out.dst = d.destination(0, doubled(d, type));
    d.out.a = d.source(1, type);
    d.out.b = d.source(2, type);
    d.out.c = d.source(3, doubled(d, type));
    return d.set(pick_narrow(type, [](auto t) -> Handler {
      using T = decltype(t);
      return lanes3<Mad<MulWide>, Twice<T>, T, T, Twice<T>>;
    }));
  }
  operands(d, type, 3);
  if (d.take("hi")) {
    if (d.take("sat")) {
      return d.set(type == Type::kS32 ? lanes3<MadHiSat, int32_t, int32_t> : nullptr);
    }
    return d.set(pick_integer(
        type, [](auto t) -> Handler { return lanes3<Mad<MulHi>, decltype(t), decltype(t)>; }));
  }
  if (!d.take("lo")) d.fail("needs .hi, .lo or .wide");
  d.set(pick_integer(
      type, [](auto t) -> Handler { return lanes3<Mad<MulLo>, decltype(t), decltype(t)>; }));
}

void decode_mul24(Decode& d) {
  const Type type = d.type();
  operands(d, type, 2);
  const bool high = d.take("hi");
  if (!high && !d.take("lo")) d.fail("needs .hi or .lo");
  if (type == Type::kU32) {
    return d.set(high ? lanes2<Mul24<true>, uint32_t, uint32_t>
                      : lanes2<Mul24<false>, uint32_t, uint32_t>);
  }
  if (type != Type::kS32) d.fail("does not exist for this type");
  d.set(high ? lanes2<Mul24<true>, int32_t, int32_t> : lanes2<Mul24<false>, int32_t, int32_t>);
}

void decode_mad24(Decode& d) {
  const Type type = d.type();
  operands(d, type, 3);
  const bool high = d.take("hi");
  if (!high && !d.take("lo")) d.fail("needs .hi or .lo");
  if (d.take("sat")) {
    return d.set(high && type == Type::kS32 ? lanes3<Mad24HiSat, int32_t, int32_t> : nullptr);
  }
  if (type == Type::kU32) {
    return d.set(high ? lanes3<Mad<Mul24<true>>, uint32_t, uint32_t>
                      : lanes3<Mad<Mul24<false>>, uint32_t, uint32_t>);
  }
  if (type != Type::kS32) d.fail("does not exist for this type");
  d.set(high ? lanes3<Mad<Mul24<true>>, int32_t, int32_t>
             : lanes3<Mad<Mul24<false>>, int32_t, int32_t>);
}

void decode_sad(Decode& d) {
  const Type type = d.type();
  operands(d, type, 3);
  d.set(
      pick_integer(type, [](auto t) -> Handler { return lanes3<Sad, decltype(t), decltype(t)>; }));
}

}  // namespace softgpu::ptx
