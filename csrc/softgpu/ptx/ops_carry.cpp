// Addition, subtraction and multiply-add that read or write the condition code, one bit per lane.
#include "lanes.h"
#include "ops.h"
#include "pick.h"

namespace softgpu::ptx {
namespace {

__extension__ using Exact = unsigned __int128;
constexpr uint8_t kReads = 1, kWrites = 2;

struct AddCarry {
  template <class T> static Exact apply(T a, T b, T, Exact carry) { return Exact{a} + b + carry; }
};
struct SubBorrow {
  // Like a carry, the borrow appears in the bit above the result.
  template <class T> static Exact apply(T a, T b, T, Exact carry) { return Exact{a} - b - carry; }
};
struct MadLoCarry {
  template <class T> static Exact apply(T a, T b, T c, Exact carry) {
    return Exact{static_cast<T>(Exact{a} * b)} + c + carry;
  }
};
template <class Signed>
struct MadHiCarry {
  template <class T> static Exact apply(T a, T b, T c, Exact carry) {
    __extension__ using SignedExact = __int128;
    const auto product = static_cast<SignedExact>(static_cast<Signed>(a)) * static_cast<Signed>(b);
    return Exact{static_cast<T>(static_cast<Exact>(product) >> (8 * sizeof(T)))} + c + carry;
  }
};
template <>
struct MadHiCarry<void> {
  template <class T> static Exact apply(T a, T b, T c, Exact carry) {
    return Exact{static_cast<T>((Exact{a} * b) >> (8 * sizeof(T)))} + c + carry;
  }
};

template <class Op, class T>
void with_carry(Warp& warp, const Instr& in, uint32_t mask) {
  const T* a = warp.at<T>(in.a);
  const T* b = warp.at<T>(in.b);
  const T* c = warp.at<T>(in.c);
  T out[kLanes] = {};
  uint32_t carries = 0;
  for (uint32_t i = 0; i < kLanes; ++i) {
    const Exact before = (in.mode & kReads) != 0 ? warp.carry >> i & 1 : 0;
    const Exact exact = Op::apply(a[i], b[i], c[i], before);
    out[i] = static_cast<T>(exact);
    carries |= static_cast<uint32_t>(exact >> (8 * sizeof(T)) & 1) << i;
  }
  write(warp, in.dst, out, mask);
  if ((in.mode & kWrites) != 0) warp.carry = (warp.carry & ~mask) | (carries & mask);
}

template <class Op>
Handler pick(Type type) {
  if (bytes_of(type) == 4) return with_carry<Op, uint32_t>;
  return bytes_of(type) == 8 ? with_carry<Op, uint64_t> : nullptr;
}

void prepare(Decode& d, Type type, bool reads, bool writes, size_t sources) {
  if (!is_integer(type)) d.fail("does not exist for this type");
  d.out.mode = static_cast<uint8_t>((reads ? kReads : 0) | (writes ? kWrites : 0));
  d.out.dst = d.destination(0, type);
  d.out.a = d.source(1, type);
  d.out.b = d.source(2, type);
  d.out.c = sources > 2 ? d.source(3, type) : d.out.a;
}

}  // namespace

void decode_carry_add(Decode& d, Type type, bool reads, bool writes) {
  prepare(d, type, reads, writes, 2);
  d.set(pick<AddCarry>(type));
}

void decode_carry_sub(Decode& d, Type type, bool reads, bool writes) {
  prepare(d, type, reads, writes, 2);
  d.set(pick<SubBorrow>(type));
}

void decode_carry_mad(Decode& d, Type type, bool reads, bool writes) {
  prepare(d, type, reads, writes, 3);
  if (d.take("lo")) return d.set(pick<MadLoCarry>(type));
  if (!d.take("hi")) d.fail("needs .hi or .lo");
  if (!is_signed(type)) return d.set(pick<MadHiCarry<void>>(type));
  d.set(bytes_of(type) == 4 ? pick<MadHiCarry<int32_t>>(type) : pick<MadHiCarry<int64_t>>(type));
}

void decode_addc(Decode& d) {
  const Type type = d.type();
  decode_carry_add(d, type, true, d.take("cc"));
}
void decode_subc(Decode& d) {
  const Type type = d.type();
  decode_carry_sub(d, type, true, d.take("cc"));
}
void decode_madc(Decode& d) {
  const Type type = d.type();
  decode_carry_mad(d, type, true, d.take("cc"));
}

}  // namespace softgpu::ptx
