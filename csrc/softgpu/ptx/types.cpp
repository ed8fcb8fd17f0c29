#include "types.h"

namespace softgpu::ptx {
namespace {

struct Row {
  std::string_view name;
  Type type;
  uint32_t bytes;
  char kind;  // p, b, u, s, f, x (packed)
};
constexpr Row kRows[] = {
    {"", Type::kNone, 0, '-'},       {"pred", Type::kPred, 4, 'p'},
    {"b8", Type::kB8, 1, 'b'},       {"u8", Type::kU8, 1, 'u'},
    {"s8", Type::kS8, 1, 's'},       {"b16", Type::kB16, 2, 'b'},
    {"u16", Type::kU16, 2, 'u'},     {"s16", Type::kS16, 2, 's'},
    {"f16", Type::kF16, 2, 'f'},     {"bf16", Type::kBf16, 2, 'f'},
    {"b32", Type::kB32, 4, 'b'},     {"u32", Type::kU32, 4, 'u'},
    {"s32", Type::kS32, 4, 's'},     {"f32", Type::kF32, 4, 'f'},
    {"f16x2", Type::kF16x2, 4, 'x'}, {"bf16x2", Type::kBf16x2, 4, 'x'},
    {"u16x2", Type::kU16x2, 4, 'x'}, {"s16x2", Type::kS16x2, 4, 'x'},
    {"b64", Type::kB64, 8, 'b'},     {"u64", Type::kU64, 8, 'u'},
    {"s64", Type::kS64, 8, 's'},     {"f64", Type::kF64, 8, 'f'},
    {"b128", Type::kB128, 16, 'b'},
};

const Row& row_of(Type type) { return kRows[static_cast<size_t>(type)]; }

}  // namespace

Type type_named(std::string_view word) {
  if (word.empty()) return Type::kNone;
  for (const Row& row : kRows) {
    if (row.name == word) return row.type;
  }
  return Type::kNone;
}

uint32_t bytes_of(Type type) { return row_of(type).bytes; }
bool is_signed(Type type) { return row_of(type).kind == 's'; }
bool is_unsigned(Type type) { return row_of(type).kind == 'u'; }
bool is_float(Type type) { return row_of(type).kind == 'f'; }
bool is_integer(Type type) { return is_signed(type) || is_unsigned(type); }
bool is_bits(Type type) { return row_of(type).kind == 'b'; }

}  // namespace softgpu::ptx
