// Arithmetic of f32 and f64. Exact where PTX demands it (.rn and the other rounding modes); .approx
// functions use the C library, which is more accurate than a GPU has to be.
#include <cmath>
#include <limits>

#include "lanes.h"
#include "ops.h"
#include "rounding.h"

namespace softgpu::ptx {
namespace {

// An f32 result has a single canonical NaN; f64 keeps the CPU's.
inline float canonical(float x) { return x == x ? x : bits_as<float>(0x7fffffffU); }
inline double canonical(double x) { return x; }

template <class T> T saturate(T x) { return x > T{0} ? (x < T{1} ? x : T{1}) : T{0}; }

struct Add {
  template <class T> static T apply(T a, T b) { return a + b; }
};
struct Sub {
  template <class T> static T apply(T a, T b) { return a - b; }
};
struct Mul {
  template <class T> static T apply(T a, T b) { return a * b; }
};
struct Div {
  template <class T> static T apply(T a, T b) { return a / b; }
};
struct Fma {
  static float apply(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  static double apply(double a, double b, double c) { return __builtin_fma(a, b, c); }
};
// min and max. -0 is less than +0; a number wins over a NaN, unless kKeepNan.
template <bool kMax, bool kKeepNan, bool kSizes>
struct Extreme {
  template <class T> static T apply(T a, T b) {
    if (kKeepNan && (a != a || b != b)) return std::numeric_limits<T>::quiet_NaN();
    if (a != a) return b;
    if (b != b) return a;
    const bool a_sign = std::signbit(a), b_sign = std::signbit(b);
    const T x = kSizes ? std::fabs(a) : a, y = kSizes ? std::fabs(b) : b;
    if (x == y) return (a_sign == kMax) ? b : (b_sign == kMax) ? a : b;
    return (x < y) == kMax ? b : a;
  }
};
struct Rcp {
  template <class T> static T apply(T a) { return T{1} / a; }
};
struct Sqrt {
  template <class T> static T apply(T a) { return std::sqrt(a); }
};
struct Rsqrt {
  template <class T> static T apply(T a) { return T{1} / std::sqrt(a); }
};
struct RsqrtSingle {
  static float apply(float a) { return static_cast<float>(1.0 / std::sqrt(double{a})); }
};
struct Sin {
  static float apply(float a) { return std::sin(a); }
};
struct Cos {
  static float apply(float a) { return std::cos(a); }
};
struct Lg2 {
  static float apply(float a) { return std::log2(a); }
};
struct Ex2 {
  static float apply(float a) { return std::exp2(a); }
};
struct Tanh {
  static float apply(float a) { return std::tanh(a); }
};
struct Abs {
  template <class T> static T apply(T a) { return std::fabs(a); }
};
struct Neg {
  template <class T> static T apply(T a) { return -a; }
};

// The plain form: only the operation and NaN canonicalisation.
template <class Op>
struct Exact {
  template <class... T> static auto apply(T... values) { return canonical(Op::apply(values...)); }
};
template <class Op>
struct Flushing {
  template <class... T> static float apply(T... values) {
    return canonical(flush(Op::apply(flush(values)...)));
  }
};
template <class Op>
struct Saturating {
  template <class... T> static auto apply(T... values) { return saturate(Op::apply(values...)); }
};
template <class Op>
struct FlushingSaturating {
  template <class... T> static float apply(T... values) {
    return saturate(flush(Op::apply(flush(values)...)));
  }
};

template <int kSources, class Op, class T>
constexpr Handler lanes() {
  if constexpr (kSources == 1) {
    return lanes1<Op, T, T>;
  } else if constexpr (kSources == 2) {
    return lanes2<Op, T, T>;
  } else {
    return lanes3<Op, T, T>;
  }
}

// Rare forms, computed lane by lane. mode: the rounding, then kFlushes and kSaturates.
constexpr uint8_t kFlushes = 4, kSaturates = 8;

template <int kSources, class Op, class T>
void directed(Warp& warp, const Instr& in, uint32_t mask) {
  const T* a = warp.at<T>(in.a);
  const T* b = kSources > 1 ? warp.at<T>(in.b) : a;
  const T* c = kSources > 2 ? warp.at<T>(in.c) : a;
  const bool flushes = (in.mode & kFlushes) != 0;
  const auto prepared = [flushes](T x) -> T {
    if constexpr (sizeof(T) == 4) {
      if (flushes) return flush(x);
    }
    return x;
  };
  T out[kLanes] = {};
  {
    const RoundingScope scope(static_cast<Rounding>(in.mode & 3));
    each_lane(mask, [&](uint32_t lane) {
      const T x = opaque(prepared(a[lane]));
      T result;
      if constexpr (kSources == 1) {
        result = Op::apply(x);
      } else if constexpr (kSources == 2) {
        result = Op::apply(x, opaque(prepared(b[lane])));
      } else {
        result = Op::apply(x, opaque(prepared(b[lane])), opaque(prepared(c[lane])));
      }
      out[lane] = opaque(result);
    });
  }
  for (T& value : out) {
    value = canonical(prepared(value));
    if ((in.mode & kSaturates) != 0) value = saturate(value);
  }
  write(warp, in.dst, out, mask);
}

Rounding take_rounding(Decode& d) {
  if (d.take("rz")) return Rounding::kZero;
  if (d.take("rm")) return Rounding::kDown;
  if (d.take("rp")) return Rounding::kUp;
  d.take("rn");
  return Rounding::kNearest;
}

struct Form {
  Rounding rounding = Rounding::kNearest;
  bool flushes = false, saturates = false;
};

Form take_form(Decode& d, Type type, int sources, uint8_t flops) {
  // The coarse f64 functions exist only with .ftz; here they are not coarse, so .ftz has no effect.
  if (type == Type::kF64 && sources == 1 && d.take("approx")) d.take("ftz");
  const Form form{take_rounding(d), d.take("ftz"), d.take("sat")};
  if (type == Type::kF64 && (form.flushes || form.saturates))
    d.fail("does not exist for this type");
  d.out.dst = d.destination(0, type);
  d.out.a = d.source(1, type);
  if (sources > 1) d.out.b = d.source(2, type);
  if (sources > 2) d.out.c = d.source(3, type);
  d.out.flops = flops;
  d.out.mode =
      static_cast<uint8_t>(static_cast<uint8_t>(form.rounding) | (form.flushes ? kFlushes : 0) |
                           (form.saturates ? kSaturates : 0));
  return form;
}

template <int kSources, class Op>
void decode_single(Decode& d, uint8_t flops) {
  const Form form = take_form(d, Type::kF32, kSources, flops);
  if (form.rounding != Rounding::kNearest) return d.set(directed<kSources, Op, float>);
  if (form.flushes && form.saturates)
    return d.set(lanes<kSources, FlushingSaturating<Op>, float>());
  if (form.flushes) return d.set(lanes<kSources, Flushing<Op>, float>());
  if (form.saturates) return d.set(lanes<kSources, Saturating<Op>, float>());
  d.set(lanes<kSources, Exact<Op>, float>());
}

template <int kSources, class Op>
void decode_arithmetic(Decode& d, Type type, uint8_t flops) {
  if (type == Type::kF32) return decode_single<kSources, Op>(d, flops);
  const Form form = take_form(d, type, kSources, flops);
  if (form.rounding != Rounding::kNearest) return d.set(directed<kSources, Op, double>);
  d.set(lanes<kSources, Exact<Op>, double>());
}

void decode_extreme(Decode& d, Type type, bool max) {
  const bool keeps_nan = d.take("NaN"), sizes = d.take("xorsign");
  if (sizes) d.fail("has modifier '.xorsign', which is not supported");
  if (max) {
    return keeps_nan ? decode_arithmetic<2, Extreme<true, true, false>>(d, type, 1)
                     : decode_arithmetic<2, Extreme<true, false, false>>(d, type, 1);
  }
  keeps_nan ? decode_arithmetic<2, Extreme<false, true, false>>(d, type, 1)
            : decode_arithmetic<2, Extreme<false, false, false>>(d, type, 1);
}

// abs and neg change the sign bit, whatever the value; only .ftz depends on the value.
template <class Op>
void decode_sign(Decode& d, Type type) {
  d.out.dst = d.destination(0, type);
  d.out.a = d.source(1, type);
  d.out.flops = 1;
  if (type == Type::kF64) return d.set(lanes1<Op, double, double>);
  d.set(d.take("ftz") ? lanes1<Flushing<Op>, float, float> : lanes1<Op, float, float>);
}

template <class Op>
void decode_single_function(Decode& d, Type type) {
  if (type != Type::kF32) d.fail("does not exist for this type");
  decode_single<1, Op>(d, 1);
}

enum Property : uint8_t { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };

template <class T>
void test_property(Warp& warp, const Instr& in, uint32_t mask) {
  const T* a = warp.at<T>(in.a);
  uint32_t found = 0;
  for (uint32_t i = 0; i < kLanes; ++i) {
    const int kind = std::fpclassify(a[i]);
    bool is = false;
    switch (in.mode) {
      case kFinite: is = kind != FP_INFINITE && kind != FP_NAN; break;
      case kInfinite: is = kind == FP_INFINITE; break;
      case kNumber: is = kind != FP_NAN; break;
      case kNotANumber: is = kind == FP_NAN; break;
      case kNormal: is = kind == FP_NORMAL; break;
      default: is = kind == FP_SUBNORMAL;
    }
    found |= static_cast<uint32_t>(is) << i;
  }
  write_predicate(warp, in.dst, found, mask);
}

struct CopySign {  // the sign of a, the magnitude of b
  template <class T> static T apply(T a, T b) { return std::copysign(b, a); }
};

}  // namespace

void decode_float(Decode& d, Type type) {
  if (type != Type::kF32 && type != Type::kF64) d.fail("does not exist for this type");
  const std::string& name = d.from.opcode;
  if (name == "add") return decode_arithmetic<2, Add>(d, type, 1);
  if (name == "sub") return decode_arithmetic<2, Sub>(d, type, 1);
  if (name == "mul") return decode_arithmetic<2, Mul>(d, type, 1);
  if (name == "mad") return decode_arithmetic<3, Fma>(d, type, 2);
  if (name == "min" || name == "max") return decode_extreme(d, type, name == "max");
  if (name == "abs") return decode_sign<Abs>(d, type);
  if (name == "neg") return decode_sign<Neg>(d, type);
  if (name != "div") d.fail("does not exist for this type");
  if (!d.take("approx")) d.take("full");
  decode_arithmetic<2, Div>(d, type, 1);
}

void decode_fma(Decode& d) {
  const Type type = d.type();
  if (is_half(type)) return decode_half(d, type);
  if (type != Type::kF32 && type != Type::kF64) d.fail("does not exist for this type");
  decode_arithmetic<3, Fma>(d, type, 2);
}

void decode_function(Decode& d) {
  const Type type = d.type();
  if (is_half(type)) return decode_half(d, type);
  if (type != Type::kF32 && type != Type::kF64) d.fail("does not exist for this type");
  if (type == Type::kF32) d.take("approx");
  const std::string& name = d.from.opcode;
  if (name == "rcp") return decode_arithmetic<1, Rcp>(d, type, 1);
  if (name == "sqrt") return decode_arithmetic<1, Sqrt>(d, type, 1);
  if (name == "rsqrt") {
    return type == Type::kF32 ? decode_single<1, RsqrtSingle>(d, 1)
                              : decode_arithmetic<1, Rsqrt>(d, type, 1);
  }
  if (name == "sin") return decode_single_function<Sin>(d, type);
  if (name == "cos") return decode_single_function<Cos>(d, type);
  if (name == "lg2") return decode_single_function<Lg2>(d, type);
  if (name == "ex2") return decode_single_function<Ex2>(d, type);
  decode_single_function<Tanh>(d, type);
}

void decode_copysign(Decode& d) {
  const Type type = d.type();
  d.out.dst = d.destination(0, type);
  d.out.a = d.source(1, type);
  d.out.b = d.source(2, type);
  if (type == Type::kF32) return d.set(lanes2<CopySign, float, float>);
  d.set(type == Type::kF64 ? lanes2<CopySign, double, double> : nullptr);
}

void decode_testp(Decode& d) {
  const Type type = d.type();
  constexpr std::string_view kNames[] = {"finite",     "infinite", "number",
                                         "notanumber", "normal",   "subnormal"};
  bool known = false;
  for (uint8_t i = 0; i < 6; ++i) {
    if (!d.take(kNames[i])) continue;
    d.out.mode = i;
    known = true;
  }
  if (!known) d.fail("has no property");
  d.out.dst = d.destination(0, Type::kPred);
  d.out.a = d.source(1, type);
  if (type == Type::kF32) return d.set(test_property<float>);
  d.set(type == Type::kF64 ? test_property<double> : nullptr);
}

}  // namespace softgpu::ptx
