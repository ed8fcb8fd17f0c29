// The types and state spaces of PTX, and the exception thrown for PTX that cannot be loaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace softgpu::ptx {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kU8,
  kS8,
  kB16,
  kU16,
  kS16,
  kF16,
  kBf16,
  kB32,
  kU32,
  kS32,
  kF32,
  kF16x2,
  kBf16x2,
  kU16x2,
  kS16x2,
  kB64,
  kU64,
  kS64,
  kF64,
  kB128,
};

enum class Space : uint8_t { kGeneric, kReg, kConst, kGlobal, kLocal, kParam, kShared };

// Maps "s32" and so on to the type; kNone for any other word.
Type type_named(std::string_view word);
uint32_t bytes_of(Type type);
bool is_signed(Type type);
bool is_unsigned(Type type);
bool is_float(Type type);    // scalar: f16 bf16 f32 f64
bool is_integer(Type type);  // u8 to u64 and s8 to s64
bool is_bits(Type type);

// The text is not PTX, or PTX that the interpreter does not support.
class Invalid : public std::runtime_error {
 public:
  Invalid(uint32_t line, const std::string& what)
      : std::runtime_error("line " + std::to_string(line) + "; " + what) {}
};

}  // namespace softgpu::ptx
