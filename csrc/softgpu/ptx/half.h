// 16-bit floats: widening is exact, narrowing rounds to nearest even by default.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace softgpu::ptx {

template <class To, class From>
inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// .ftz: a subnormal becomes a zero of the same sign.
inline float flush(float x) { return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x; }

inline float bfloat_to_float(uint16_t bits) { return bits_as<float>(uint32_t{bits} << 16); }

inline float half_to_float(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t rest = bits & 0x7fffu;
  if (rest >= 0x7c00) return bits_as<float>(sign | 0x7f800000 | rest << 13);
  if (rest >= 0x0400) return bits_as<float>(sign | ((rest << 13) + 0x38000000));
  const float small = static_cast<float>(rest) * 0x1p-24f;  // exact
  return sign != 0 ? -small : small;
}

enum class Rounding : uint8_t { kNearest, kZero, kDown, kUp };

// Rounds to a format with `kDigits` explicit significand bits and `kExponent` exponent bits.
template <int kDigits, int kExponent>
inline uint16_t round_to_small(double x, Rounding rounding) {
  constexpr int kBias = (1 << (kExponent - 1)) - 1;
  constexpr uint16_t kInfinity = static_cast<uint16_t>(((1 << kExponent) - 1) << kDigits);
  const auto sign = static_cast<uint16_t>(std::signbit(x) ? 0x8000 : 0);
  if (x != x) return 0x7fff;
  const double size = std::fabs(x);
  if (std::isinf(size)) return sign | kInfinity;
  if (size == 0) return sign;
  int exponent;
  std::frexp(size, &exponent);  // size in [0.5, 1) * 2^exponent
  if (exponent - 1 < 1 - kBias) exponent = 2 - kBias;
  const double unit = std::ldexp(1.0, exponent - 1 - kDigits);
  const double scaled = size / unit;  // exact: a power of two
  double whole = std::floor(scaled);
  const double rest = scaled - whole;
  const bool up = rounding == Rounding::kNearest
                      ? rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) != 0)
                      : rest > 0 && rounding == (sign != 0 ? Rounding::kDown : Rounding::kUp);
  if (up) whole += 1;
  // Adds the significand, with its leading one if any, to the exponent field, so that a carry out
  // of the significand increments the exponent.
  const int field = exponent - 1 + kBias - 1;
  const int64_t bits = (int64_t{field} << kDigits) + static_cast<int64_t>(whole);
  if (bits < kInfinity) return static_cast<uint16_t>(sign | static_cast<uint16_t>(bits));
  const bool away =
      rounding == Rounding::kNearest || rounding == (sign != 0 ? Rounding::kDown : Rounding::kUp);
  return static_cast<uint16_t>(sign | (away ? kInfinity : kInfinity - 1));
}

inline uint16_t to_half(double x, Rounding rounding = Rounding::kNearest) {
  return round_to_small<10, 5>(x, rounding);
}
inline uint16_t to_bfloat(double x, Rounding rounding = Rounding::kNearest) {
  return round_to_small<7, 8>(x, rounding);
}

}  // namespace softgpu::ptx
