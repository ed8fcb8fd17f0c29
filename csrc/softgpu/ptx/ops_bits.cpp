// Bitwise logic, shifts and bit fields.
#include <algorithm>
#include <type_traits>

#include "lanes.h"
#include "ops.h"
#include "pick.h"

namespace softgpu::ptx {
namespace {

struct And {
  template <class T> static T apply(T a, T b) { return static_cast<T>(a & b); }
};
struct Or {
  template <class T> static T apply(T a, T b) { return static_cast<T>(a | b); }
};
struct Xor {
  template <class T> static T apply(T a, T b) { return static_cast<T>(a ^ b); }
};
struct Not {
  template <class T> static T apply(T a) { return static_cast<T>(~a); }
};
struct Cnot {
  template <class T> static T apply(T a) { return a == 0 ? 1 : 0; }
};
struct Shl {
  template <class T> static T apply(T a, uint32_t by) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    return by >= kBits ? T{0} : static_cast<T>(a << by);
  }
};
struct Shr {  // arithmetic for a signed type
  template <class T> static T apply(T a, uint32_t by) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    if (std::is_signed<T>::value) return static_cast<T>(a >> std::min(by, kBits - 1));
    return by >= kBits ? T{0} : static_cast<T>(a >> by);
  }
};
template <bool kLeft, bool kWrap>
struct Shf {  // funnel shift: one half of b:a shifted
  static uint32_t apply(uint32_t a, uint32_t b, uint32_t by) {
    const uint32_t n = kWrap ? by & 31 : std::min(by, 32u);
    const uint64_t both = uint64_t{b} << 32 | a;
    return static_cast<uint32_t>(kLeft ? both << n >> 32 : both >> n);
  }
};
struct Bfe {
  template <class T> static T apply(T a, uint32_t position, uint32_t length) {
    using U = std::make_unsigned_t<T>;
    constexpr uint32_t kBits = 8 * sizeof(T);
    const uint32_t from = position & 0xff, bits = length & 0xff;
    if (bits == 0) return 0;
    const uint32_t last = std::min(from + bits - 1, kBits - 1);  // the bit that is sign-extended
    const bool fill = std::is_signed<T>::value && (static_cast<U>(a) >> last & 1) != 0;
    const U value = from >= kBits ? U{0} : static_cast<U>(static_cast<U>(a) >> from);
    const uint32_t have = from >= kBits ? 0 : std::min(bits, kBits - from);
    const U keep = have >= kBits ? static_cast<U>(~U{0}) : static_cast<U>((U{1} << have) - 1);
    return static_cast<T>((value & keep) | (fill ? static_cast<U>(~keep) : U{0}));
  }
};
struct Brev {
  template <class T> static T apply(T a) {
    T out = 0;
    for (uint32_t i = 0; i < 8 * sizeof(T); ++i) out = static_cast<T>(out << 1 | (a >> i & 1));
    return out;
  }
};
struct Popc {
  template <class T> static uint32_t apply(T a) {
    return static_cast<uint32_t>(__builtin_popcountll(a));
  }
};
struct Clz {
  template <class T> static uint32_t apply(T a) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    return a == 0 ? kBits : static_cast<uint32_t>(__builtin_clzll(a)) - (64 - kBits);
  }
};
template <bool kShift>
struct Bfind {  // position of the highest non-sign bit
  template <class T> static uint32_t apply(T a) {
    using U = std::make_unsigned_t<T>;
    const U bits = static_cast<U>(std::is_signed<T>::value && a < T{0} ? ~a : a);
    if (bits == 0) return UINT32_MAX;
    const uint32_t leading = Clz::apply(bits);
    return kShift ? leading : static_cast<uint32_t>(8 * sizeof(T)) - 1 - leading;
  }
};
template <bool kWrap>
struct Bmsk {
  static uint32_t apply(uint32_t position, uint32_t length) {
    const uint32_t from = kWrap ? position & 31 : std::min(position, 32u);
    const uint32_t bits = kWrap ? length & 31 : std::min(length, 32u);
    return static_cast<uint32_t>((((uint64_t{1} << bits) - 1) << from) & UINT32_MAX);
  }
};
template <bool kWrap>
struct Szext {  // extends a value of `bits` bits to 32
  template <class T> static T apply(T a, uint32_t bits) {
    const uint32_t n = kWrap ? bits & 31 : std::min(bits, 32u);
    if (n == 0) return 0;
    const auto up = static_cast<T>(static_cast<uint32_t>(a) << (32 - n));
    return static_cast<T>(up >> (32 - n));
  }
};

void binary_bits(Decode& d, Type type) {
  d.out.dst = d.destination(0, type);
  d.out.a = d.source(1, type);
  d.out.b = d.source(2, type);
}

template <class Op>
void masks2(Warp& warp, const Instr& in, uint32_t mask) {
  write_predicate(warp, in.dst, Op::apply(*warp.at<uint32_t>(in.a), *warp.at<uint32_t>(in.b)),
                  mask);
}

template <class Op>
void decode_logic(Decode& d) {
  const Type type = d.type();
  binary_bits(d, type);
  if (type == Type::kPred) return d.set(masks2<Op>);
  if (!is_bits(type)) d.fail("does not exist for this type");
  d.set(pick_bits(type, [](auto t) -> Handler { return lanes2<Op, decltype(t), decltype(t)>; }));
}

void invert_mask(Warp& warp, const Instr& in, uint32_t mask) {
  write_predicate(warp, in.dst, ~*warp.at<uint32_t>(in.a), mask);
}

template <class Op>
void decode_count(Decode& d) {
  const Type type = d.type();
  d.out.dst = d.destination(0, Type::kB32);
  d.out.a = d.source(1, type);
  if (bytes_of(type) == 4) return d.set(lanes1<Op, uint32_t, uint32_t>);
  d.set(bytes_of(type) == 8 ? lanes1<Op, uint32_t, uint64_t> : nullptr);
}

template <class T>
void insert_field(Warp& warp, const Instr& in, uint32_t mask) {
  const T* a = warp.at<T>(in.a);
  const T* b = warp.at<T>(in.b);
  const uint32_t* position = warp.at<uint32_t>(in.c);
  const uint32_t* length = warp.at<uint32_t>(in.d);
  constexpr uint32_t kBits = 8 * sizeof(T);
  T out[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) {
    const uint32_t from = position[i] & 0xff, bits = length[i] & 0xff;
    const T field = bits >= kBits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << bits) - 1);
    const T keep = from >= kBits ? T{0} : static_cast<T>(field << from);
    const T moved = from >= kBits ? T{0} : static_cast<T>(a[i] << from);
    out[i] = static_cast<T>((b[i] & ~keep) | (moved & keep));
  }
  write(warp, in.dst, out, mask);
}

}  // namespace

void decode_and(Decode& d) { decode_logic<And>(d); }
void decode_or(Decode& d) { decode_logic<Or>(d); }
void decode_xor(Decode& d) { decode_logic<Xor>(d); }

void decode_not(Decode& d) {
  const Type type = d.type();
  d.out.dst = d.destination(0, type);
  d.out.a = d.source(1, type);
  if (type == Type::kPred) return d.set(invert_mask);
  d.set(pick_bits(type, [](auto t) -> Handler { return lanes1<Not, decltype(t), decltype(t)>; }));
}

void decode_cnot(Decode& d) {
  const Type type = d.type();
  d.out.dst = d.destination(0, type);
  d.out.a = d.source(1, type);
  d.set(pick_bits(type, [](auto t) -> Handler { return lanes1<Cnot, decltype(t), decltype(t)>; }));
}

void decode_shl(Decode& d) {
  const Type type = d.type();
  d.out.dst = d.destination(0, type);
  d.out.a = d.source(1, type);
  d.out.b = d.source(2, Type::kB32);
  d.set(pick_bits(
      type, [](auto t) -> Handler { return lanes2<Shl, decltype(t), decltype(t), uint32_t>; }));
}

void decode_shr(Decode& d) {
  const Type type = d.type();
  d.out.dst = d.destination(0, type);
  d.out.a = d.source(1, type);
  d.out.b = d.source(2, Type::kB32);
  d.set(pick_integer(
      type, [](auto t) -> Handler { return lanes2<Shr, decltype(t), decltype(t), uint32_t>; }));
}

void decode_shf(Decode& d) {
  const Type type = d.type();
  if (type != Type::kB32) d.fail("does not exist for this type");
  binary_bits(d, type);
  d.out.c = d.source(3, Type::kB32);
  const bool left = d.take("l");
  if (!left && !d.take("r")) d.fail("needs .l or .r");
  const bool wrap = d.take("wrap");
  if (!wrap && !d.take("clamp")) d.fail("needs .clamp or .wrap");
  if (left) {
    return d.set(wrap ? lanes3<Shf<true, true>, uint32_t, uint32_t>
                      : lanes3<Shf<true, false>, uint32_t, uint32_t>);
  }
  d.set(wrap ? lanes3<Shf<false, true>, uint32_t, uint32_t>
             : lanes3<Shf<false, false>, uint32_t, uint32_t>);
}

void decode_bfe(Decode& d) {
  const Type type = d.type();
  d.out.dst = d.destination(0, type);
  d.out.a = d.source(1, type);
  d.out.b = d.source(2, Type::kB32);
  d.out.c = d.source(3, Type::kB32);
  d.set(pick_wide_integer(type, [](auto t) -> Handler {
    return lanes3<Bfe, decltype(t), decltype(t), uint32_t, uint32_t>;
  }));
}

void decode_bfi(Decode& d) {
  const Type type = d.type();
  binary_bits(d, type);
  d.out.c = d.source(3, Type::kB32);
  d.out.d = d.source(4, Type::kB32);
  if (bytes_of(type) == 4) return d.set(insert_field<uint32_t>);
  d.set(bytes_of(type) == 8 ? insert_field<uint64_t> : nullptr);
}

void decode_bfind(Decode& d) {
  const Type type = d.type();
  const bool shift = d.take("shiftamt");
  d.out.dst = d.destination(0, Type::kB32);
  d.out.a = d.source(1, type);
  d.set(pick_wide_integer(type, [shift](auto t) -> Handler {
    if (shift) return lanes1<Bfind<true>, uint32_t, decltype(t)>;
    return lanes1<Bfind<false>, uint32_t, decltype(t)>;
  }));
}

void decode_brev(Decode& d) {
  const Type type = d.type();
  d.out.dst = d.destination(0, type);
  d.out.a = d.source(1, type);
  if (bytes_of(type) == 4) return d.set(lanes1<Brev, uint32_t, uint32_t>);
  d.set(bytes_of(type) == 8 ? lanes1<Brev, uint64_t, uint64_t> : nullptr);
}

void decode_popc(Decode& d) { decode_count<Popc>(d); }
void decode_clz(Decode& d) { decode_count<Clz>(d); }

void decode_bmsk(Decode& d) {
  if (d.type() != Type::kB32) d.fail("does not exist for this type");
  binary_bits(d, Type::kB32);
  const bool wrap = d.take("wrap");
  if (!wrap && !d.take("clamp")) d.fail("needs .clamp or .wrap");
  d.set(wrap ? lanes2<Bmsk<true>, uint32_t, uint32_t> : lanes2<Bmsk<false>, uint32_t, uint32_t>);
}

void decode_szext(Decode& d) {
  const Type type = d.type();
  binary_bits(d, type);
  const bool wrap = d.take("wrap");
  if (!wrap && !d.take("clamp")) d.fail("needs .clamp or .wrap");
  if (type == Type::kS32) {
    return d.set(wrap ? lanes2<Szext<true>, int32_t, int32_t, uint32_t>
                      : lanes2<Szext<false>, int32_t, int32_t, uint32_t>);
  }
  if (type != Type::kU32) d.fail("does not exist for this type");
  d.set(wrap ? lanes2<Szext<true>, uint32_t, uint32_t, uint32_t>
             : lanes2<Szext<false>, uint32_t, uint32_t, uint32_t>);
}

}  // namespace softgpu::ptx
