// Copies between registers, packing and unpacking, addresses and clocks.
#include <cstring>

#include "cluster.h"
#include "control.h"
#include "control_flow.h"
#include "lanes.h"
#include "ops.h"
#include "pick.h"

namespace softgpu::ptx {
namespace {

template <class T>
void copy(Warp& warp, const Instr& in, uint32_t mask) {
  const T* a = warp.at<T>(in.a);
  T* to = warp.at<T>(in.dst);
  if (mask == kAllLanes) {
    memmove(to, a, sizeof(T) * kLanes);
    return;
  }
  for (uint32_t i = 0; i < kLanes; ++i) to[i] = (mask >> i & 1) != 0 ? a[i] : to[i];
}

struct Quad {
  uint64_t low, high;
};

void copy_mask(Warp& warp, const Instr& in, uint32_t mask) {
  write_predicate(warp, in.dst, *warp.at<uint32_t>(in.a), mask);
}

// immediate: size of one part in bytes. Lanes are strided by the width of their registers.
void pack(Warp& warp, const Instr& in, uint32_t mask) {
  const uint64_t part = in.immediate, whole = part * in.count;
  const uint32_t* parts = warp.frame().function->extra.data() + in.extra;
  for (uint32_t k = 0; k < in.count; ++k) {
    const char* from = warp.at<char>(parts[k]);
    char* to = warp.at<char>(in.dst) + k * part;
    each_lane(mask, [&](uint32_t lane) { memcpy(to + lane * whole, from + lane * part, part); });
  }
}

void unpack(Warp& warp, const Instr& in, uint32_t mask) {
  const uint64_t part = in.immediate, whole = part * in.count;
  const uint32_t* parts = warp.frame().function->extra.data() + in.extra;
  char copied[16 * kLanes];  // a destination may be the source register itself
  memcpy(copied, warp.at<char>(in.a), whole * kLanes);
  for (uint32_t k = 0; k < in.count; ++k) {
    const char* from = copied + k * part;
    char* to = warp.at<char>(parts[k]);
    each_lane(mask, [&](uint32_t lane) { memcpy(to + lane * part, from + lane * whole, part); });
  }
}

bool decode_clock(Decode& d, const ast::Operand& from, Type type) {
  constexpr struct {
    std::string_view name;
    Clock clock;
  } kClocks[] = {{"%clock", kCycles},
                 {"%clock64", kCycles},
                 {"%clock_hi", kCyclesHigh},
                 {"%globaltimer", kNanoseconds},
                 {"%globaltimer_lo", kNanoseconds},
                 {"%globaltimer_hi", kNanosecondsHigh}};
  for (const auto& known : kClocks) {
    if (from.kind != ast::Kind::kName || from.name != known.name) continue;
    d.out.mode = known.clock;
    d.out.immediate = bytes_of(type);
    if (d.out.immediate < 4) d.fail("has a special register of another width than its type");
    d.out.dst = d.destination(0, type);
    d.out.flow = Flow::kClock;
    return true;
  }
  return false;
}

void decode_parts(Decode& d, const ast::Operand& list, Type type, bool packs) {
  if (list.separator != '{' || list.parts.empty() || list.parts.size() > 8) {
    d.fail("has an operand of the wrong kind");
  }
  const auto bytes = static_cast<uint32_t>(bytes_of(type) / list.parts.size());
  const Type part = bytes == 8   ? Type::kB64
                    : bytes == 4 ? Type::kB32
                    : bytes == 2 ? Type::kB16
                    : bytes == 1 ? Type::kB8
                                 : Type::kNone;
  if (part == Type::kNone || bytes * list.parts.size() != bytes_of(type)) {
    d.fail("has parts of the wrong width");
  }
  for (const ast::Operand& operand : list.parts) {
    d.further(packs ? d.source(operand, part) : d.destination(operand, part));
  }
  d.out.immediate = bytes;
}

// Decodes the address of a variable in the frame or in the kernel's parameters.
bool decode_frame_address(Decode& d, const ast::Operand& from, Type type) {
  if (from.kind != ast::Kind::kName || from.variable == ast::kNone) return false;
  const ast::Variable& variable = d.builder.from().variables[static_cast<size_t>(from.variable)];
  if (variable.space == Space::kShared) return false;
  if (bytes_of(type) != 8) d.fail("has an address in a narrow register");
  const bool params = d.builder.in_kernel_params(from.variable);
  d.out.dst = d.destination(0, type);
  d.out.a = d.builder.special(params ? Special::kParams : Special::kFrame, true);
  d.out.immediate = d.builder.variable_offset(from.variable) + from.bits;
  d.set([](Warp& warp, const Instr& in, uint32_t mask) {
    const uint64_t* base = warp.at<uint64_t>(in.a);
    uint64_t out[kLanes];
    for (uint32_t i = 0; i < kLanes; ++i) out[i] = base[i] + in.immediate;
    write(warp, in.dst, out, mask);
  });
  return true;
}

// Only shared addresses differ from generic ones.
template <bool kToGeneric>
void convert_shared(Warp& warp, const Instr& in, uint32_t mask) {
  const uint64_t* a = warp.at<uint64_t>(in.a);
  const Block& block = *warp.block;
  uint64_t out[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) {
    out[i] = kToGeneric ? shared_to_generic(block, a[i]) : generic_to_shared(block, a[i]);
  }
  write(warp, in.dst, out, mask);
}

void is_in_space(Warp& warp, const Instr& in, uint32_t mask) {
  const uint64_t* address = warp.at<uint64_t>(in.a);
  const Block& block = *warp.block;
  const auto shared = reinterpret_cast<uint64_t>(block.shared);
  const auto local = reinterpret_cast<uint64_t>(block.local);
  const auto constants = reinterpret_cast<uint64_t>(block.launch->program->memory);
  const auto params = reinterpret_cast<uint64_t>(block.launch->params);
  uint32_t found = 0;
  for (uint32_t i = 0; i < kLanes; ++i) {
    const bool in_shared = address[i] - shared < block.shared_bytes;
    const bool in_local = address[i] - local < block.local_bytes;
    const bool in_params = address[i] - params < block.launch->kernel->params_bytes;
    bool is = false;
    switch (static_cast<Space>(in.mode)) {
      case Space::kShared:
        is = in.count != 0 ? holder_of(block, address[i], 1) != nullptr : in_shared;
        break;
      case Space::kLocal: is = in_local; break;
      case Space::kParam: is = in_params; break;
      case Space::kConst:  // .const and .global share one piece of memory, constants first
        is = address[i] - constants < block.launch->program->const_bytes;
        break;
      default:
        is = holder_of(block, address[i], 1) == nullptr && !in_local &&
             address[i] - constants >= block.launch->program->const_bytes;
    }
    found |= static_cast<uint32_t>(is) << i;
  }
  write_predicate(warp, in.dst, found, mask);
}

}  // namespace

// Clocks count the warp's instructions and the time it slept, as nanoseconds; %globaltimer adds the
// kernel's start. So clocks are reproducible from run to run, and advance for code that polls them.
void read_clock(Warp& warp, const Instr& in, uint32_t mask) {
  uint64_t now = warp.block->begin_ns + warp.time_ns();
  if (in.mode >= kNanoseconds) now += warp.block->launch->start_ns;
  if (in.mode == kCyclesHigh || in.mode == kNanosecondsHigh) now >>= 32;
  if (in.immediate == 8) {
    uint64_t out[kLanes];
    for (uint64_t& value : out) value = now;
    write(warp, in.dst, out, mask);
  } else {
    uint32_t out[kLanes];
    for (uint32_t& value : out) value = static_cast<uint32_t>(now);
    write(warp, in.dst, out, mask);
  }
}

void decode_mov(Decode& d) {
  const Type type = d.type();
  const ast::Operand& from = d.operand(1);
  const ast::Operand& to = d.operand(0);
  if (decode_clock(d, from, type) || decode_frame_address(d, from, type)) return;
  if (from.kind == ast::Kind::kList) {
    decode_parts(d, from, type, true);
    d.out.dst = d.destination(to, type);
    return d.set(pack);
  }
  if (to.kind == ast::Kind::kList) {
    decode_parts(d, to, type, false);
    d.out.a = d.source(from, type);
    return d.set(unpack);
  }
  d.out.dst = d.destination(to, type);
  if (type == Type::kPred && from.kind == ast::Kind::kInteger) {
    d.out.a = d.builder.constant(from.bits != 0 ? UINT64_MAX : 0, 0, 4);
    return d.set(copy_mask);
  }
  d.out.a = d.source(from, type);
  if (type == Type::kPred) return d.set(copy_mask);
  if (type == Type::kB128) return d.set(copy<Quad>);
  d.set(pick_bits(type, [](auto t) -> Handler { return copy<decltype(t)>; }));
}

void decode_cvta(Decode& d) {
  const Type type = d.type();
  const bool from_generic = d.take("to");
  const Space space = take_space(d);
  if (space == Space::kGeneric) d.fail("has no state space");
  if (type != Type::kU64 && type != Type::kU32) d.fail("does not exist for this type");
  const ast::Operand& from = d.operand(1);
  if (space != Space::kShared && decode_frame_address(d, from, type)) return;
  d.out.dst = d.destination(0, type);
  d.out.a = d.source(from, type);
  if (space == Space::kShared) {
    if (type == Type::kU32) d.fail("has a generic address in a narrow register");
    return d.set(from_generic ? convert_shared<false> : convert_shared<true>);
  }
  d.set(pick_bits(type, [](auto t) -> Handler { return copy<decltype(t)>; }));
}

void decode_isspacep(Decode& d) {
  d.out.count = d.take("shared::cluster") ? 1 : 0;  // 0: the block's own shared memory alone
  d.out.mode = static_cast<uint8_t>(d.out.count != 0 ? Space::kShared : take_space(d));
  d.out.dst = d.destination(0, Type::kPred);
  d.out.a = d.source(1, Type::kB64);
  d.set(is_in_space);
}

}  // namespace softgpu::ptx
