// Byte permutation, lookup tables (lop3), find n-th set bit, and the small dot products.
#include <algorithm>

#include "lanes.h"
#include "ops.h"

namespace softgpu::ptx {
namespace {

void binary_words(Decode& d) {
  d.out.dst = d.destination(0, Type::kB32);
  d.out.a = d.source(1, Type::kB32);
  d.out.b = d.source(2, Type::kB32);
}

enum PermuteMode : uint8_t { kPick, kF4e, kB4e, kRc8, kEcl, kEcr, kRc16 };

uint32_t permute(uint32_t a, uint32_t b, uint32_t control, uint8_t mode) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  const uint32_t n = control & 3;
  uint32_t out = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    uint32_t select = control >> (4 * i) & 15;
    switch (mode) {
      case kF4e: select = n + i; break;
      case kB4e: select = (n - i) & 7; break;
      case kRc8: select = n; break;
      case kEcl: select = std::max(i, n); break;
      case kEcr: select = std::min(i, n); break;
      case kRc16: select = 2 * (n & 1) + (i & 1); break;
      default: break;
    }
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (select & 7))) & 0xff;
    if (mode == kPick && (select & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    out |= byte << (8 * i);
  }
  return out;
}

void permute_lanes(Warp& warp, const Instr& in, uint32_t mask) {
  const uint32_t* a = warp.at<uint32_t>(in.a);
  const uint32_t* b = warp.at<uint32_t>(in.b);
  const uint32_t* c = warp.at<uint32_t>(in.c);
  uint32_t out[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) out[i] = permute(a[i], b[i], c[i], in.mode);
  write(warp, in.dst, out, mask);
}

uint32_t look_up(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
  uint32_t out = 0;
  for (uint32_t row = 0; row < 8; ++row) {
    if ((table >> row & 1) == 0) continue;
    out |= ((row & 4) != 0 ? a : ~a) & ((row & 2) != 0 ? b : ~b) & ((row & 1) != 0 ? c : ~c);
  }
  return out;
}

void look_up_lanes(Warp& warp, const Instr& in, uint32_t mask) {
  const uint32_t* a = warp.at<uint32_t>(in.a);
  const uint32_t* b = warp.at<uint32_t>(in.b);
  const uint32_t* c = warp.at<uint32_t>(in.c);
  uint32_t out[kLanes];
  uint32_t nonzero = 0;
  for (uint32_t i = 0; i < kLanes; ++i) {
    out[i] = look_up(a[i], b[i], c[i], static_cast<uint32_t>(in.immediate));
    nonzero |= static_cast<uint32_t>(out[i] != 0) << i;
  }
  write(warp, in.dst, out, mask);
  if (in.d == kNoSlot) return;
  const uint32_t other = *warp.at<uint32_t>(in.d) ^ ((in.mode & 2) != 0 ? kAllLanes : 0);
  write_predicate(warp, in.dst2, (in.mode & 1) != 0 ? nonzero & other : nonzero | other, mask);
}

void find_nth_lanes(Warp& warp, const Instr& in, uint32_t mask) {
  const uint32_t* bits = warp.at<uint32_t>(in.a);
  const uint32_t* base = warp.at<uint32_t>(in.b);
  const int32_t* offset = warp.at<int32_t>(in.c);
  uint32_t out[kLanes] = {};
  each_lane(mask, [&](uint32_t lane) {
    int64_t left = offset[lane];
    const int step = left < 0 ? -1 : 1;
    if (left == 0) {
      const bool there = base[lane] < 32 && (bits[lane] >> base[lane] & 1) != 0;
      out[lane] = there ? base[lane] : UINT32_MAX;
      return;
    }
    left = left < 0 ? -left : left;
    out[lane] = UINT32_MAX;
    for (int64_t at = base[lane]; at >= 0 && at < 32; at += step) {
      if ((bits[lane] >> at & 1) != 0 && --left == 0) {
        out[lane] = static_cast<uint32_t>(at);
        return;
      }
    }
  });
  write(warp, in.dst, out, mask);
}

// dp4a and dp2a. Mode bits 0 and 1: elements of a and of b are signed; bit 2: the upper half of b.
void dot_product(Warp& warp, const Instr& in, uint32_t mask) {
  const uint32_t* a = warp.at<uint32_t>(in.a);
  const uint32_t* b = warp.at<uint32_t>(in.b);
  const uint32_t* c = warp.at<uint32_t>(in.c);
  const bool two = in.count == 2;
  uint32_t out[kLanes];
  const auto element = [](uint32_t word, uint32_t i, uint32_t bits, bool with_sign) {
    const uint32_t up = word << (32 - bits * (i + 1));
    return with_sign ? static_cast<uint32_t>(static_cast<int32_t>(up) >> (32 - bits))
                     : up >> (32 - bits);
  };
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    uint32_t sum = c[lane];
    for (uint32_t i = 0; i < (two ? 2u : 4u); ++i) {
      const uint32_t from_b = two && (in.mode & 4) != 0 ? i + 2 : i;
      sum += element(a[lane], i, two ? 16 : 8, (in.mode & 1) != 0) *
             element(b[lane], from_b, 8, (in.mode & 2) != 0);
    }
    out[lane] = sum;
  }
  write(warp, in.dst, out, mask);
}

void decode_dot(Decode& d, uint8_t count) {
  const Type a = d.type(), b = d.type();
  if (!is_integer(a) || !is_integer(b) || bytes_of(a) != 4 || bytes_of(b) != 4) {
    d.fail("does not exist for this type");
  }
  d.out.mode = static_cast<uint8_t>((is_signed(a) ? 1 : 0) | (is_signed(b) ? 2 : 0));
  if (count == 2 && d.take("hi")) {
    d.out.mode |= 4;
  } else if (count == 2 && !d.take("lo")) {
    d.fail("needs .hi or .lo");
  }
  binary_words(d);
  d.out.c = d.source(3, Type::kB32);
  d.out.count = count;
  d.set(dot_product);
}

}  // namespace

void decode_prmt(Decode& d) {
  if (d.type() != Type::kB32) d.fail("does not exist for this type");
  constexpr std::string_view kModes[] = {"", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
  for (uint8_t mode = kF4e; mode <= kRc16; ++mode) {
    if (d.take(kModes[mode])) d.out.mode = mode;
  }
  binary_words(d);
  d.out.c = d.source(3, Type::kB32);
  d.set(permute_lanes);
}

// lop3{.and|.or}.b32 d{|p}, a, b, c, table{, q}
void decode_lop3(Decode& d) {
  if (d.type() != Type::kB32) d.fail("does not exist for this type");
  const bool with_and = d.take("and");
  const ast::Operand* result = &d.operand(0);
  if (with_and || d.take("or")) {
    if (result->separator != '|') d.fail("has no second result");
    bool negated = false;
    d.out.d = d.predicate(d.operand(5), &negated);
    d.out.mode = static_cast<uint8_t>((with_and ? 1 : 0) | (negated ? 2 : 0));
    d.out.dst2 = d.destination(result->parts[1], Type::kPred);
    result = &result->parts[0];
  }
  d.out.dst = d.destination(*result, Type::kB32);
  d.out.a = d.source(1, Type::kB32);
  d.out.b = d.source(2, Type::kB32);
  d.out.c = d.source(3, Type::kB32);
  d.out.immediate = d.integer(4);
  d.set(look_up_lanes);
}

void decode_fns(Decode& d) {
  if (d.type() != Type::kB32) d.fail("does not exist for this type");
  binary_words(d);
  d.out.c = d.source(3, Type::kB32);
  d.set(find_nth_lanes);
}

void decode_dp4a(Decode& d) { decode_dot(d, 4); }
void decode_dp2a(Decode& d) { decode_dot(d, 2); }

}  // namespace softgpu::ptx
