// cvt: the source is widened to 64 bits, converted there, and narrowed to the result.
#include <cmath>
#include <limits>

#include "lanes.h"
#include "ops.h"
#include "rounding.h"

namespace softgpu::ptx {
namespace {

enum Modes : uint8_t { kSaturates = 1, kFlushes = 2, kRelu = 4, kWhole = 8 };

// Describes one conversion. Stored in Instr::immediate, a byte per field.
struct Plan {
  uint8_t from, to;              // Type
  uint8_t from_bytes, to_bytes;  // of the registers
  uint8_t rounding, modes;
  uint8_t spare[2];
};
static_assert(sizeof(Plan) == 8);

struct Values {
  union {
    int64_t whole[kLanes];
    double real[kLanes];
  };
};

template <class R, class T>
void widen_as(const char* from, int64_t (&to)[kLanes]) {
  const R* values = reinterpret_cast<const R*>(from);
  for (uint32_t i = 0; i < kLanes; ++i) to[i] = static_cast<int64_t>(static_cast<T>(values[i]));
}

// R is the register's element type; a value of type T is in its low part.
template <class R>
void widen_whole(const char* from, Type type, int64_t (&to)[kLanes]) {
  switch (type) {
    case Type::kU8: return widen_as<R, uint8_t>(from, to);
    case Type::kS8: return widen_as<R, int8_t>(from, to);
    case Type::kU16: return widen_as<R, uint16_t>(from, to);
    case Type::kS16: return widen_as<R, int16_t>(from, to);
    case Type::kU32: return widen_as<R, uint32_t>(from, to);
    case Type::kS32: return widen_as<R, int32_t>(from, to);
    default: return widen_as<R, int64_t>(from, to);
  }
}

void widen(const char* from, const Plan& plan, Values& to) {
  const auto type = static_cast<Type>(plan.from);
  const bool flushes = (plan.modes & kFlushes) != 0;
  switch (type) {
    case Type::kF64: memcpy(to.real, from, sizeof to.real); return;
    case Type::kF32:
      for (uint32_t i = 0; i < kLanes; ++i) {
        const float value = reinterpret_cast<const float*>(from)[i];
        to.real[i] = flushes ? flush(value) : value;
      }
      return;
    case Type::kF16:
      for (uint32_t i = 0; i < kLanes; ++i) {
        to.real[i] = half_to_float(reinterpret_cast<const uint16_t*>(from)[i]);
      }
      return;
    case Type::kBf16:
      for (uint32_t i = 0; i < kLanes; ++i) {
        to.real[i] = bfloat_to_float(reinterpret_cast<const uint16_t*>(from)[i]);
      }
      return;
    default: break;
  }
  switch (plan.from_bytes) {
    case 1: return widen_whole<uint8_t>(from, type, to.whole);
    case 2: return widen_whole<uint16_t>(from, type, to.whole);
    case 4: return widen_whole<uint32_t>(from, type, to.whole);
    default: return widen_whole<uint64_t>(from, type, to.whole);
  }
}

template <class R>
void narrow_as(const Warp& warp, uint32_t slot, const int64_t (&values)[kLanes], uint32_t mask) {
  R out[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) out[i] = static_cast<R>(values[i]);
  write(warp, slot, out, mask);
}

// `values` hold the results, sign- or zero-extended to 64 bits according to their type.
void narrow(const Warp& warp, uint32_t slot, uint32_t bytes, const int64_t (&values)[kLanes],
            uint32_t mask) {
  switch (bytes) {
    case 1: return narrow_as<uint8_t>(warp, slot, values, mask);
    case 2: return narrow_as<uint16_t>(warp, slot, values, mask);
    case 4: return narrow_as<uint32_t>(warp, slot, values, mask);
    default: return narrow_as<uint64_t>(warp, slot, values, mask);
  }
}

int64_t cut(int64_t value, Type type) {  // truncates to the type's width and extends again
  switch (type) {
    case Type::kU8: return static_cast<uint8_t>(value);
    case Type::kS8: return static_cast<int8_t>(value);
    case Type::kU16: return static_cast<uint16_t>(value);
    case Type::kS16: return static_cast<int16_t>(value);
    case Type::kU32: return static_cast<uint32_t>(value);
    case Type::kS32: return static_cast<int32_t>(value);
    default: return value;
  }
}

struct Bounds {
  int64_t low;
  uint64_t high;
};

Bounds bounds_of(Type type) {
  const uint32_t bits = 8 * bytes_of(type);
  if (is_signed(type)) {
    const auto high = static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1);
    return {-high - 1, static_cast<uint64_t>(high)};
  }
  return {0, bits == 64 ? UINT64_MAX : (uint64_t{1} << bits) - 1};
}

int64_t clamp_whole(int64_t value, Type from, Type to) {
  const Bounds bounds = bounds_of(to);
  const bool negative = is_signed(from) && value < 0;
  if (negative) return value < bounds.low ? bounds.low : value;
  return static_cast<uint64_t>(value) > bounds.high ? static_cast<int64_t>(bounds.high) : value;
}

double to_whole_number(double x, Rounding rounding) {
  switch (rounding) {
    case Rounding::kNearest: return std::nearbyint(x);
    case Rounding::kZero: return std::trunc(x);
    case Rounding::kDown: return std::floor(x);
    default: return std::ceil(x);
  }
}

// A value out of range becomes the nearest bound. A NaN becomes 0, or, if either side has 64 bits,
// the bit pattern of the lowest signed number.
int64_t real_to_whole(double x, Type from, Type to, Rounding rounding) {
  if (x != x) {
    if (from != Type::kF64 && bytes_of(to) != 8) return 0;
    return cut(static_cast<int64_t>(uint64_t{1} << (8 * bytes_of(to) - 1)), to);
  }
  const Bounds bounds = bounds_of(to);
  const double whole = to_whole_number(x, rounding);
  if (whole <= static_cast<double>(bounds.low)) return bounds.low;
  if (whole >= static_cast<double>(bounds.high)) return static_cast<int64_t>(bounds.high);
  return is_signed(to) ? static_cast<int64_t>(whole)
                       : static_cast<int64_t>(static_cast<uint64_t>(whole));
}

double finished(double x, const Plan& plan) {
  if ((plan.modes & kWhole) != 0) x = to_whole_number(x, static_cast<Rounding>(plan.rounding));
  if ((plan.modes & kSaturates) != 0) x = x > 0 ? (x < 1 ? x : 1) : 0;
  if ((plan.modes & kRelu) != 0 && !(x > 0)) x = x != x ? x : 0;
  return x;
}

uint64_t real_bits(double x, const Plan& plan) {
  const bool whole = (plan.modes & kWhole) != 0;
  const Rounding rounding = whole ? Rounding::kNearest : static_cast<Rounding>(plan.rounding);
  switch (static_cast<Type>(plan.to)) {
    case Type::kF64: return bits_as<uint64_t>(x);
    case Type::kF16: return to_half(x, rounding);
    case Type::kBf16: return to_bfloat(x, rounding);
    default: break;
  }
  float single = opaque(static_cast<float>(opaque(x)));
  if ((plan.modes & kFlushes) != 0) single = flush(single);
  return single == single ? bits_as<uint32_t>(single) : 0x7fffffff;
}

uint64_t whole_to_real_bits(int64_t value, const Plan& plan) {
  const bool negative_possible = is_signed(static_cast<Type>(plan.from));
  const auto type = static_cast<Type>(plan.to);
  const auto unsigned_value = static_cast<uint64_t>(value);
  if (type == Type::kF32) {
    float single =
        negative_possible ? static_cast<float>(value) : static_cast<float>(unsigned_value);
    if ((plan.modes & kSaturates) != 0) single = single > 0 ? (single < 1 ? single : 1) : 0;
    return bits_as<uint32_t>(opaque(single));
  }
  const double wide =
      opaque(negative_possible ? static_cast<double>(value) : static_cast<double>(unsigned_value));
  return real_bits(wide, plan);
}

void convert(Warp& warp, const Instr& in, uint32_t mask) {
  const auto plan = bits_as<Plan>(in.immediate);
  const auto from = static_cast<Type>(plan.from), to = static_cast<Type>(plan.to);
  const auto rounding = static_cast<Rounding>(plan.rounding);
  Values values;
  widen(warp.at<char>(in.a), plan, values);
  int64_t out[kLanes] = {};
  if (!is_float(from) && !is_float(to)) {
    const bool saturates = (plan.modes & kSaturates) != 0;
    for (uint32_t i = 0; i < kLanes; ++i) {
      out[i] = saturates ? clamp_whole(values.whole[i], from, to) : cut(values.whole[i], to);
    }
  } else if (!is_float(to)) {
    each_lane(mask,
              [&](uint32_t i) { out[i] = real_to_whole(values.real[i], from, to, rounding); });
  } else {
    const bool whole = (plan.modes & kWhole) != 0;
    const RoundingScope scope(whole ? Rounding::kNearest : rounding);
    each_lane(mask, [&](uint32_t i) {
      out[i] = static_cast<int64_t>(is_float(from) ? real_bits(finished(values.real[i], plan), plan)
                                                   : whole_to_real_bits(values.whole[i], plan));
    });
  }
  narrow(warp, in.dst, plan.to_bytes, out, mask);
}

// cvt.rn.f16x2.f32 d, a, b: a goes to the upper half.
void convert_pair(Warp& warp, const Instr& in, uint32_t mask) {
  const auto plan = bits_as<Plan>(in.immediate);
  const float* a = warp.at<float>(in.a);
  const float* b = warp.at<float>(in.b);
  uint32_t out[kLanes] = {};
  each_lane(mask, [&](uint32_t i) {
    const uint64_t high = real_bits(finished(a[i], plan), plan);
    const uint64_t low = real_bits(finished(b[i], plan), plan);
    out[i] = static_cast<uint32_t>(high << 16 | low);
  });
  write(warp, in.dst, out, mask);
}

// The conversions common in loops, done directly instead of through 64 bits.
template <class To, class From>
struct Plain {
  static To apply(From x) { return static_cast<To>(x); }
};
template <class To, class From>
constexpr Handler kPlain = lanes1<Plain<To, From>, To, From>;

Handler plain_conversion(Type to, Type from) {
  if (to == Type::kF64 && from == Type::kF32) return kPlain<double, float>;
  if (to == Type::kF32 && from == Type::kS32) return kPlain<float, int32_t>;
  if (to == Type::kF32 && from == Type::kU32) return kPlain<float, uint32_t>;
  if (to == Type::kF64 && from == Type::kS32) return kPlain<double, int32_t>;
  const bool to_long = to == Type::kU64 || to == Type::kS64;
  const bool to_word = to == Type::kU32 || to == Type::kS32;
  if (to_long && from == Type::kS32) return kPlain<int64_t, int32_t>;
  if (to_long && from == Type::kU32) return kPlain<uint64_t, uint32_t>;
  if (to_word && (from == Type::kU64 || from == Type::kS64)) return kPlain<uint32_t, uint64_t>;
  return nullptr;
}

void take_rounding(Decode& d, Plan& plan, Type to, Type from) {
  const bool whole_result = !is_float(to) || to == from;
  constexpr std::string_view kWholes[] = {"rni", "rzi", "rmi", "rpi"};
  constexpr std::string_view kReals[] = {"rn", "rz", "rm", "rp"};
  for (uint8_t i = 0; i < 4; ++i) {
    if (d.take(kWholes[i])) {
      if (!whole_result || !is_float(from)) d.fail("cannot round to a whole number");
      plan.rounding = i;
      if (is_float(to)) plan.modes |= kWhole;
    } else if (d.take(kReals[i])) {
      plan.rounding = i;
      if (!is_float(to)) d.fail("needs a rounding to a whole number");
    }
  }
}

}  // namespace

void decode_cvt(Decode& d) {
  const Type to = d.type(), from = d.type();
  const bool pair = to == Type::kF16x2 || to == Type::kBf16x2;
  Plan plan{};
  take_rounding(d, plan, pair ? Type::kF16 : to, from);
  plan.modes = static_cast<uint8_t>(plan.modes | (d.take("sat") ? kSaturates : 0) |
                                    (d.take("ftz") ? kFlushes : 0) | (d.take("relu") ? kRelu : 0));
  plan.from = static_cast<uint8_t>(from);
  plan.to = static_cast<uint8_t>(to);
  if (pair) {
    if (from != Type::kF32) d.fail("does not exist for this type");
    plan.to = static_cast<uint8_t>(to == Type::kF16x2 ? Type::kF16 : Type::kBf16);
    d.out.dst = d.destination(0, to);
    d.out.a = d.source(1, from);
    d.out.b = d.source(2, from);
    d.out.immediate = bits_as<uint64_t>(plan);
    return d.set(convert_pair);
  }
  if ((!is_float(to) && !is_integer(to)) || (!is_float(from) && !is_integer(from))) {
    d.fail("does not exist for this type");
  }
  uint32_t to_bytes = bytes_of(to), from_bytes = bytes_of(from);
  if (d.operand(0).kind == ast::Kind::kSink) {
    d.out.dst = d.builder.sink();
  } else {
    d.out.dst = d.any_register(d.operand(0), &to_bytes);
  }
  const ast::Operand& source = d.operand(1);
  d.out.a = source.kind == ast::Kind::kRegister ? d.any_register(source, &from_bytes)
                                                : d.source(source, from);
  if (from_bytes < bytes_of(from) || to_bytes < bytes_of(to) || from_bytes > 8 || to_bytes > 8 ||
      (is_float(from) && from_bytes != bytes_of(from))) {
    d.fail("has a register of another width than its type");
  }
  plan.from_bytes = static_cast<uint8_t>(from_bytes);
  plan.to_bytes = static_cast<uint8_t>(to_bytes);
  d.out.immediate = bits_as<uint64_t>(plan);
  const bool usual = plan.modes == 0 && plan.rounding == 0 && to_bytes == bytes_of(to) &&
                     from_bytes == bytes_of(from);
  const Handler plain = usual ? plain_conversion(to, from) : nullptr;
  d.set(plain != nullptr ? plain : convert);
}

}  // namespace softgpu::ptx
