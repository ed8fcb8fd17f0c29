// f16 and bf16, single and in pairs. Computed in double, which is exact except for fma, then
// rounded once.
#include <cmath>
#include <limits>

#include "half.h"
#include "lanes.h"
#include "ops.h"

namespace softgpu::ptx {
namespace {

struct Half {
  static double wide(uint16_t x) { return half_to_float(x); }
  static uint16_t narrow(double x) { return to_half(x); }
  static constexpr uint16_t kSmallestNormal = 0x0400;
};
struct Bfloat {
  static double wide(uint16_t x) { return bfloat_to_float(x); }
  static uint16_t narrow(double x) { return to_bfloat(x); }
  static constexpr uint16_t kSmallestNormal = 0x0080;
};

struct Add {
  static double apply(double a, double b) { return a + b; }
};
struct Sub {
  static double apply(double a, double b) { return a - b; }
};
struct Mul {
  static double apply(double a, double b) { return a * b; }
};
// The product is exact. The sum is rounded to odd, so that the final rounding is correct.
struct Fma {
  static double apply(double a, double b, double c) {
    const double product = a * b, sum = product + c;
    const double tail = sum - product;
    const double error = (product - (sum - tail)) + (c - tail);
    if (!(std::fabs(error) > 0) || std::isinf(sum)) return sum;
    auto bits = bits_as<uint64_t>(sum);
    if ((bits & 1) != 0) return sum;
    bits += (error > 0) == (sum > 0) ? 1 : UINT64_MAX;
    return bits_as<double>(bits);
  }
};
template <bool kMax>
struct Extreme {
  static double apply(double a, double b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return std::signbit(a) == kMax ? b : a;
    return (a < b) == kMax ? b : a;
  }
};
template <bool kMax>
struct ExtremeOrNan {
  static double apply(double a, double b) {
    return a != a || b != b ? std::numeric_limits<double>::quiet_NaN() : Extreme<kMax>::apply(a, b);
  }
};
struct Ex2 {
  static double apply(double a) { return std::exp2(a); }
};
struct Tanh {
  static double apply(double a) { return std::tanh(a); }
};

enum Modes : uint8_t { kFlushes = 1, kSaturates = 2, kRelu = 4 };

template <class F>
uint16_t flushed(uint16_t x) {
  return (x & 0x7fff) < F::kSmallestNormal ? x & 0x8000 : x;
}

template <class F>
uint16_t finished(double x, uint8_t mode) {
  if ((mode & kSaturates) != 0) x = x > 0 ? (x < 1 ? x : 1) : 0;
  if ((mode & kRelu) != 0 && x < 0) x = 0;
  const uint16_t bits = F::narrow(x);
  return (mode & kFlushes) != 0 ? flushed<F>(bits) : bits;
}

template <class F, class Op, int kSources>
uint16_t one(uint16_t a, uint16_t b, uint16_t c, uint8_t mode) {
  if ((mode & kFlushes) != 0) {
    a = flushed<F>(a);
    b = flushed<F>(b);
    c = flushed<F>(c);
  }
  if constexpr (kSources == 1) {
    return finished<F>(Op::apply(F::wide(a)), mode);
  } else if constexpr (kSources == 2) {
    return finished<F>(Op::apply(F::wide(a), F::wide(b)), mode);
  } else {
    return finished<F>(Op::apply(F::wide(a), F::wide(b), F::wide(c)), mode);
  }
}

// U is uint16_t for a single value, uint32_t for a pair.
template <class F, class Op, int kSources, class U>
void half_lanes(Warp& warp, const Instr& in, uint32_t mask) {
  const U* a = warp.at<U>(in.a);
  const U* b = kSources > 1 ? warp.at<U>(in.b) : a;
  const U* c = kSources > 2 ? warp.at<U>(in.c) : a;
  U out[kLanes] = {};
  each_lane(mask, [&](uint32_t i) {
    U value = 0;
    for (uint32_t shift = 0; shift < 8 * sizeof(U); shift += 16) {
      const uint16_t part = one<F, Op, kSources>(static_cast<uint16_t>(a[i] >> shift),
                                                 static_cast<uint16_t>(b[i] >> shift),
                                                 static_cast<uint16_t>(c[i] >> shift), in.mode);
      value = static_cast<U>(value | static_cast<U>(part) << shift);
    }
    out[i] = value;
  });
  write(warp, in.dst, out, mask);
}

template <class Op, int kSources>
Handler pick(Type type) {
  switch (type) {
    case Type::kF16: return half_lanes<Half, Op, kSources, uint16_t>;
    case Type::kBf16: return half_lanes<Bfloat, Op, kSources, uint16_t>;
    case Type::kF16x2: return half_lanes<Half, Op, kSources, uint32_t>;
    default: return half_lanes<Bfloat, Op, kSources, uint32_t>;
  }
}

// abs and neg change only the sign bit, so there is no rounding and no NaN to handle.
template <bool kNegates, class U>
void sign_lanes(Warp& warp, const Instr& in, uint32_t mask) {
  constexpr U kSigns = static_cast<U>(0x80008000U);
  const U* a = warp.at<U>(in.a);
  U out[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) {
    out[i] = static_cast<U>(kNegates ? a[i] ^ kSigns : a[i] & ~kSigns);
  }
  write(warp, in.dst, out, mask);
}

}  // namespace

bool is_half(Type type) {
  return type == Type::kF16 || type == Type::kBf16 || type == Type::kF16x2 || type == Type::kBf16x2;
}

void decode_half(Decode& d, Type type) {
  const std::string& name = d.from.opcode;
  d.take("rn");
  d.take("approx");
  const bool keeps_nan = d.take("NaN");
  d.out.mode =
      static_cast<uint8_t>((d.take("ftz") ? kFlushes : 0) | (d.take("sat") ? kSaturates : 0) |
                           (d.take("relu") ? kRelu : 0));
  const size_t sources = d.operand_count() - (d.operand_count() > 0 ? 1 : 0);
  d.out.dst = d.destination(0, type);
  d.out.a = d.source(1, type);
  if (sources > 1) d.out.b = d.source(2, type);
  if (sources > 2) d.out.c = d.source(3, type);
  d.out.flops = static_cast<uint8_t>(bytes_of(type) / 2 * (name == "fma" ? 2 : 1));
  const size_t wanted = name == "fma"                                                       ? 3
                        : name == "abs" || name == "neg" || name == "ex2" || name == "tanh" ? 1
                                                                                            : 2;
  if (sources != wanted) d.fail("has another number of operands");
  if (name == "add") return d.set(pick<Add, 2>(type));
  if (name == "sub") return d.set(pick<Sub, 2>(type));
  if (name == "mul") return d.set(pick<Mul, 2>(type));
  if (name == "fma") return d.set(pick<Fma, 3>(type));
  if (name == "min") {
    return d.set(keeps_nan ? pick<ExtremeOrNan<false>, 2>(type) : pick<Extreme<false>, 2>(type));
  }
  if (name == "max") {
    return d.set(keeps_nan ? pick<ExtremeOrNan<true>, 2>(type) : pick<Extreme<true>, 2>(type));
  }
  if (name == "ex2") return d.set(pick<Ex2, 1>(type));
  if (name == "tanh") return d.set(pick<Tanh, 1>(type));
  const bool pair = bytes_of(type) == 4;
  if (name == "abs") {
    return d.set(pair ? sign_lanes<false, uint32_t> : sign_lanes<false, uint16_t>);
  }
  if (name != "neg") d.fail("does not exist for this type");
  d.set(pair ? sign_lanes<true, uint32_t> : sign_lanes<true, uint16_t>);
}

}  // namespace softgpu::ptx
