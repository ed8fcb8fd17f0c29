// Data exchange between the lanes of a warp. A member mask names the lanes that take part; members
// that are not on this path count as absent.
#include "lanes.h"
#include "ops.h"
#include "pick.h"

namespace softgpu::ptx {
namespace {

enum ShuffleMode : uint8_t { kUp, kDown, kButterfly, kIndex };

// c: bits 0-4 hold the clamp value, bits 8-12 the segment mask.
void shuffle(Warp& warp, const Instr& in, uint32_t mask) {
  const uint32_t* a = warp.at<uint32_t>(in.a);
  const uint32_t* b = warp.at<uint32_t>(in.b);
  const uint32_t* c = warp.at<uint32_t>(in.c);
  uint32_t out[kLanes] = {};
  uint32_t inside = 0;
  each_lane(mask, [&](uint32_t lane) {
    const auto by = static_cast<int32_t>(b[lane] & 31);
    const auto clamp = static_cast<int32_t>(c[lane] & 31);
    const auto segment = static_cast<int32_t>(c[lane] >> 8 & 31);
    const auto own = static_cast<int32_t>(lane);
    const int32_t most = (own & segment) | (clamp & ~segment);
    int32_t from = 0;
    bool in_range = false;
    switch (in.mode) {
      case kUp:
        from = own - by;
        in_range = from >= most;
        break;
      case kDown:
        from = own + by;
        in_range = from <= most;
        break;
      case kButterfly:
        from = own ^ by;
        in_range = from <= most;
        break;
      default: from = (own & segment) | (by & ~segment); in_range = from <= most;
    }
    if (!in_range) from = own;
    out[lane] = a[from & 31];
    inside |= static_cast<uint32_t>(in_range) << lane;
  });
  write(warp, in.dst, out, mask);
  write_predicate(warp, in.dst2, inside, mask);
}

uint32_t members(const Warp& warp, const Instr& in, uint32_t mask, uint32_t lane) {
  return in.d == kNoSlot ? mask : warp.at<uint32_t>(in.d)[lane] & mask;
}

enum VoteMode : uint8_t { kAll, kAny, kUniformly, kBallot, kNegated = 8 };

void vote(Warp& warp, const Instr& in, uint32_t mask) {
  uint32_t yes = *warp.at<uint32_t>(in.a);
  if ((in.mode & kNegated) != 0) yes = ~yes;
  uint32_t ballots[kLanes] = {};
  uint32_t answers = 0;
  each_lane(mask, [&](uint32_t lane) {
    const uint32_t who = members(warp, in, mask, lane), ayes = yes & who;
    bool answer = false;
    switch (in.mode & 7) {
      case kAll: answer = ayes == who; break;
      case kAny: answer = ayes != 0; break;
      case kUniformly: answer = ayes == 0 || ayes == who; break;
      default: ballots[lane] = ayes;
    }
    answers |= static_cast<uint32_t>(answer) << lane;
  });
  if ((in.mode & 7) == kBallot) {
    write(warp, in.dst, ballots, mask);
  } else {
    write_predicate(warp, in.dst, answers, mask);
  }
}

template <class T, bool kAllOfThem>
void match(Warp& warp, const Instr& in, uint32_t mask) {
  const T* a = warp.at<T>(in.a);
  uint32_t out[kLanes] = {};
  uint32_t unanimous = 0;
  each_lane(mask, [&](uint32_t lane) {
    const uint32_t who = members(warp, in, mask, lane);
    uint32_t same = 0;
    each_lane(who,
              [&](uint32_t other) { same |= static_cast<uint32_t>(a[other] == a[lane]) << other; });
    const bool all = same == who;
    out[lane] = kAllOfThem ? (all ? who : 0) : same;
    unanimous |= static_cast<uint32_t>(all) << lane;
  });
  write(warp, in.dst, out, mask);
  write_predicate(warp, in.dst2, unanimous, mask);
}

struct Add {
  template <class T> static T apply(T a, T b) { return a + b; }
};
struct And {
  template <class T> static T apply(T a, T b) { return a & b; }
};
struct Or {
  template <class T> static T apply(T a, T b) { return a | b; }
};
struct Xor {
  template <class T> static T apply(T a, T b) { return a ^ b; }
};
struct Min {
  template <class T> static T apply(T a, T b) { return a < b ? a : b; }
};
struct Max {
  template <class T> static T apply(T a, T b) { return a < b ? b : a; }
};

template <class Op, class T>
void reduce(Warp& warp, const Instr& in, uint32_t mask) {
  const T* a = warp.at<T>(in.a);
  T out[kLanes] = {};
  each_lane(mask, [&](uint32_t lane) {
    const uint32_t who = members(warp, in, mask, lane);
    if (who == 0) return;
    T total = a[__builtin_ctz(who)];
    each_lane(who & (who - 1), [&](uint32_t other) { total = Op::apply(total, a[other]); });
    out[lane] = total;
  });
  write(warp, in.dst, out, mask);
}

void elect(Warp& warp, const Instr& in, uint32_t mask) {
  uint32_t out[kLanes] = {};
  uint32_t leaders = 0;
  each_lane(mask, [&](uint32_t lane) {
    const uint32_t who = members(warp, in, mask, lane);
    if (who == 0) return;
    out[lane] = static_cast<uint32_t>(__builtin_ctz(who));
    leaders |= static_cast<uint32_t>(out[lane] == lane) << lane;
  });
  write(warp, in.dst, out, mask);
  write_predicate(warp, in.dst2, leaders, mask);
}

// Takes a destination of the form d or d|p.
void take_pair(Decode& d, Type type) {
  const ast::Operand& result = d.operand(0);
  if (result.separator != '|') {
    d.out.dst = d.destination(result, type);
    return;
  }
  d.out.dst = d.destination(result.parts[0], type);
  d.out.dst2 = d.destination(result.parts[1], Type::kPred);
}

void take_members(Decode& d, size_t index) {
  if (!d.take("sync")) return;
  d.out.d = d.source(index, Type::kB32);
  d.out.flow = Flow::kSync;
}

}  // namespace

void decode_shfl(Decode& d) {
  if (bytes_of(d.type()) != 4) d.fail("does not exist for this type");
  constexpr std::string_view kNames[] = {"up", "down", "bfly", "idx"};
  bool known = false;
  for (uint8_t mode = kUp; mode <= kIndex; ++mode) {
    if (!d.take(kNames[mode])) continue;
    d.out.mode = mode;
    known = true;
  }
  if (!known) d.fail("has no mode");
  take_pair(d, Type::kB32);
  d.out.a = d.source(1, Type::kB32);
  d.out.b = d.source(2, Type::kB32);
  d.out.c = d.source(3, Type::kB32);
  take_members(d, 4);
  d.set(shuffle);
}

void decode_vote(Decode& d) {
  const Type type = d.type();
  constexpr std::string_view kNames[] = {"all", "any", "uni", "ballot"};
  bool known = false;
  for (uint8_t mode = kAll; mode <= kBallot; ++mode) {
    if (!d.take(kNames[mode])) continue;
    d.out.mode = mode;
    known = true;
  }
  const bool ballot = d.out.mode == kBallot;
  if (!known || type != (ballot ? Type::kB32 : Type::kPred)) d.fail("has no mode of this type");
  bool negated = false;
  d.out.dst = d.destination(0, type);
  d.out.a = d.predicate(d.operand(1), &negated);
  if (negated) d.out.mode |= kNegated;
  take_members(d, 2);
  d.set(vote);
}

void decode_match(Decode& d) {
  const Type type = d.type();
  const bool all = d.take("all");
  if (!all && !d.take("any")) d.fail("needs .all or .any");
  take_pair(d, Type::kB32);
  d.out.a = d.source(1, type);
  take_members(d, 2);
  if (type == Type::kB32) return d.set(all ? match<uint32_t, true> : match<uint32_t, false>);
  if (type != Type::kB64) d.fail("does not exist for this type");
  d.set(all ? match<uint64_t, true> : match<uint64_t, false>);
}

void decode_activemask(Decode& d) {
  d.out.dst = d.destination(0, d.type());
  d.set([](Warp& warp, const Instr& in, uint32_t mask) {
    uint32_t out[kLanes];
    for (uint32_t& value : out) value = mask;
    write(warp, in.dst, out, mask);
  });
}

void decode_redux(Decode& d) {
  const Type type = d.type();
  d.out.dst = d.destination(0, type);
  d.out.a = d.source(1, type);
  take_members(d, 2);
  if (bytes_of(type) != 4 || is_float(type)) d.fail("does not exist for this type");
  const bool with_sign = is_signed(type);
  if (d.take("add")) return d.set(reduce<Add, uint32_t>);
  if (d.take("and")) return d.set(reduce<And, uint32_t>);
  if (d.take("or")) return d.set(reduce<Or, uint32_t>);
  if (d.take("xor")) return d.set(reduce<Xor, uint32_t>);
  if (d.take("min")) return d.set(with_sign ? reduce<Min, int32_t> : reduce<Min, uint32_t>);
  if (!d.take("max")) d.fail("has no operation");
  d.set(with_sign ? reduce<Max, int32_t> : reduce<Max, uint32_t>);
}

void decode_elect(Decode& d) {
  take_pair(d, Type::kB32);
  take_members(d, 1);
  d.set(elect);
}

}  // namespace softgpu::ptx
