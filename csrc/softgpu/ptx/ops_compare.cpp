// Comparisons, and selections that depend on them.
#include <cmath>

#include "half.h"
#include "lanes.h"
#include "ops.h"
#include "pick.h"

namespace softgpu::ptx {
namespace {

using Compare = uint32_t (*)(const char* a, const char* b);

template <class T> bool unordered(T a, T b) { return a != a || b != b; }

// Given a NaN, ordered comparisons are false, as in C++, and unordered ("u") ones are true.
struct Eq {
  template <class T> static bool apply(T a, T b) { return a == b; }
};
struct Lt {
  template <class T> static bool apply(T a, T b) { return a < b; }
};
struct Le {
  template <class T> static bool apply(T a, T b) { return a <= b; }
};
struct Gt {
  template <class T> static bool apply(T a, T b) { return a > b; }
};
struct Ge {
  template <class T> static bool apply(T a, T b) { return a >= b; }
};
struct NeOrdered {
  template <class T> static bool apply(T a, T b) { return a < b || a > b; }
};
struct NeAny {
  template <class T> static bool apply(T a, T b) { return a != b; }
};
struct Num {
  template <class T> static bool apply(T a, T b) { return !unordered(a, b); }
};
struct Nan {
  template <class T> static bool apply(T a, T b) { return unordered(a, b); }
};
template <class Op>
struct OrNan {
  template <class T> static bool apply(T a, T b) { return !Op::apply(a, b); }
};

template <class T> struct Plain {
  using Stored = T;
  static T value(T stored) { return stored; }
};
struct Flushed {
  using Stored = float;
  static float value(float stored) { return flush(stored); }
};
struct Half {
  using Stored = uint16_t;
  static float value(uint16_t stored) { return half_to_float(stored); }
};
struct Bfloat {
  using Stored = uint16_t;
  static float value(uint16_t stored) { return bfloat_to_float(stored); }
};

template <class Op, class As>
uint32_t compare(const char* a_bytes, const char* b_bytes) {
  using T = typename As::Stored;
  const T* a = reinterpret_cast<const T*>(a_bytes);
  const T* b = reinterpret_cast<const T*>(b_bytes);
  uint32_t out = 0;
  for (uint32_t i = 0; i < kLanes; ++i) {
    out |= static_cast<uint32_t>(Op::apply(As::value(a[i]), As::value(b[i]))) << i;
  }
  return out;
}

struct Row {
  std::string_view name;
  Compare as_float, as_double, as_flushed, as_half, as_bfloat;
};
#define SOFTGPU_COMPARE(name, ...)      \
  {name,                                \
   compare<__VA_ARGS__, Plain<float>>,  \
   compare<__VA_ARGS__, Plain<double>>, \
   compare<__VA_ARGS__, Flushed>,       \
   compare<__VA_ARGS__, Half>,          \
   compare<__VA_ARGS__, Bfloat>}
constexpr Row kFloats[] = {
    SOFTGPU_COMPARE("eq", Eq),
    SOFTGPU_COMPARE("ne", NeOrdered),
    SOFTGPU_COMPARE("lt", Lt),
    SOFTGPU_COMPARE("le", Le),
    SOFTGPU_COMPARE("gt", Gt),
    SOFTGPU_COMPARE("ge", Ge),
    SOFTGPU_COMPARE("equ", OrNan<NeOrdered>),
    SOFTGPU_COMPARE("neu", NeAny),
    SOFTGPU_COMPARE("ltu", OrNan<Ge>),
    SOFTGPU_COMPARE("leu", OrNan<Gt>),
    SOFTGPU_COMPARE("gtu", OrNan<Le>),
    SOFTGPU_COMPARE("geu", OrNan<Lt>),
    SOFTGPU_COMPARE("num", Num),
    SOFTGPU_COMPARE("nan", Nan),
};
#undef SOFTGPU_COMPARE

Compare pick_float(Decode& d, Type type) {
  const bool flushes = d.take("ftz");
  for (const Row& row : kFloats) {
    if (!d.take(row.name)) continue;
    switch (type) {
      case Type::kF32: return flushes ? row.as_flushed : row.as_float;
      case Type::kF64: return row.as_double;
      case Type::kF16: return row.as_half;
      default: return row.as_bfloat;
    }
  }
  d.fail("has no comparison that exists for this type");
}

template <class Op>
Compare pick_whole(Type type) {
  switch (type) {
    case Type::kU16:
    case Type::kB16: return compare<Op, Plain<uint16_t>>;
    case Type::kS16: return compare<Op, Plain<int16_t>>;
    case Type::kU32:
    case Type::kB32: return compare<Op, Plain<uint32_t>>;
    case Type::kS32: return compare<Op, Plain<int32_t>>;
    case Type::kU64:
    case Type::kB64: return compare<Op, Plain<uint64_t>>;
    case Type::kS64: return compare<Op, Plain<int64_t>>;
    default: return nullptr;
  }
}

Compare pick_compare(Decode& d, Type type) {
  if (is_float(type)) return pick_float(d, type);
  Compare found = nullptr;
  if (d.take("eq")) {
    found = pick_whole<Eq>(type);
  } else if (d.take("ne")) {
    found = pick_whole<NeAny>(type);
  } else if (d.take("lt") || d.take("lo")) {
    found = pick_whole<Lt>(type);
  } else if (d.take("le") || d.take("ls")) {
    found = pick_whole<Le>(type);
  } else if (d.take("gt") || d.take("hi")) {
    found = pick_whole<Gt>(type);
  } else if (d.take("ge") || d.take("hs")) {
    found = pick_whole<Ge>(type);
  }
  if (found == nullptr) d.fail("has no comparison that exists for this type");
  return found;
}

enum Combination : uint8_t { kPlain, kAnd, kOr, kXor, kNegated = 4 };

uint32_t combine(const Warp& warp, const Instr& in, uint32_t found) {
  if (in.c == kNoSlot) return found;
  uint32_t other = *warp.at<uint32_t>(in.c);
  if ((in.mode & kNegated) != 0) other = ~other;
  switch (in.mode & 3) {
    case kAnd: return found & other;
    case kOr: return found | other;
    default: return found ^ other;
  }
}

uint32_t compared(const Warp& warp, const Instr& in) {
  // A function pointer of this process, put there by pick_compare.
  const auto compare = reinterpret_cast<Compare>(in.immediate);
  return compare(warp.at<char>(in.a), warp.at<char>(in.b));
}

void set_predicates(Warp& warp, const Instr& in, uint32_t mask) {
  const uint32_t found = compared(warp, in);
  const uint32_t first = combine(warp, in, found), second = combine(warp, in, ~found);
  write_predicate(warp, in.dst, first, mask);
  write_predicate(warp, in.dst2, second, mask);
}

template <class T>
void set_values(Warp& warp, const Instr& in, uint32_t mask) {
  const uint32_t found = combine(warp, in, compared(warp, in));
  const auto yes = static_cast<T>(in.d);  // here not a slot but the value that means true
  T out[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) out[i] = (found >> i & 1) != 0 ? yes : T{0};
  write(warp, in.dst, out, mask);
}

void take_comparison(Decode& d, Type type) {
  d.out.immediate = reinterpret_cast<uint64_t>(pick_compare(d, type));
  d.out.a = d.source(1, type);
  d.out.b = d.source(2, type);
  const Combination with = d.take("and")   ? kAnd
                           : d.take("or")  ? kOr
                           : d.take("xor") ? kXor
                                           : kPlain;
  if (with == kPlain) return;
  bool negated = false;
  d.out.c = d.predicate(d.operand(3), &negated);
  d.out.mode = static_cast<uint8_t>(with | (negated ? kNegated : 0));
}

template <class T>
void select(Warp& warp, const Instr& in, uint32_t mask) {
  const T* a = warp.at<T>(in.a);
  const T* b = warp.at<T>(in.b);
  const uint32_t choice = *warp.at<uint32_t>(in.c);
  T out[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) out[i] = (choice >> i & 1) != 0 ? a[i] : b[i];
  write(warp, in.dst, out, mask);
}

struct BySign {
  template <class T, class S> static T apply(T a, T b, S c) { return c >= 0 ? a : b; }
};
struct BySignFlushed {
  template <class T> static T apply(T a, T b, float c) { return flush(c) >= 0 ? a : b; }
};

}  // namespace

void decode_setp(Decode& d) {
  const Type type = d.type();
  const ast::Operand& result = d.operand(0);
  if (result.separator == '|') {
    d.out.dst = d.destination(result.parts[0], Type::kPred);
    d.out.dst2 = d.destination(result.parts[1], Type::kPred);
  } else {
    d.out.dst = d.destination(result, Type::kPred);
  }
  take_comparison(d, type);
  d.set(set_predicates);
}

void decode_set(Decode& d) {
  const Type result = d.type(), type = d.type();
  d.out.dst = d.destination(0, result);
  take_comparison(d, type);
  switch (result) {
    case Type::kU32:
    case Type::kS32: d.out.d = UINT32_MAX; return d.set(set_values<uint32_t>);
    case Type::kF32: d.out.d = 0x3f800000; return d.set(set_values<uint32_t>);
    case Type::kU16:
    case Type::kS16: d.out.d = UINT16_MAX; return d.set(set_values<uint16_t>);
    case Type::kF16: d.out.d = 0x3c00; return d.set(set_values<uint16_t>);
    case Type::kBf16: d.out.d = 0x3f80; return d.set(set_values<uint16_t>);
    default: d.fail("does not exist for this type");
  }
}

void decode_selp(Decode& d) {
  const Type type = d.type();
  d.out.dst = d.destination(0, type);
  d.out.a = d.source(1, type);
  d.out.b = d.source(2, type);
  d.out.c = d.source(3, Type::kPred);
  d.set(pick_bits(type, [](auto t) -> Handler { return select<decltype(t)>; }));
}

void decode_slct(Decode& d) {
  const Type type = d.type(), by = d.type();
  const bool flushes = d.take("ftz");
  d.out.dst = d.destination(0, type);
  d.out.a = d.source(1, type);
  d.out.b = d.source(2, type);
  d.out.c = d.source(3, by);
  if (by != Type::kS32 && by != Type::kF32) d.fail("does not exist for this type");
  d.set(pick_bits(type, [by, flushes](auto t) -> Handler {
    using T = decltype(t);
    if (by == Type::kS32) return lanes3<BySign, T, T, T, int32_t>;
    if (flushes) return lanes3<BySignFlushed, T, T, T, float>;
    return lanes3<BySign, T, T, T, float>;
  }));
}

}  // namespace softgpu::ptx
