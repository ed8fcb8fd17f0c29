// Loads and stores of all state spaces.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "access.h"
#include "lanes.h"
#include "ops.h"

namespace softgpu::ptx {
namespace {

struct Quad {
  uint64_t low, high;
};

template <class To, class From>
To widened(From from) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else {
    return static_cast<To>(from);  // sign-extends a signed type
  }
}

bool is_run(const uint64_t (&at)[kLanes], uint32_t step) {
  uint64_t wrong = 0;
  for (uint32_t i = 0; i < kLanes; ++i) wrong |= at[i] ^ (at[0] + uint64_t{i} * step);
  return wrong == 0;
}

// T is the type in memory, R the register's element type.
template <class T, class R>
void load_part(Warp& warp, uint32_t slot, uint32_t mask, const uint64_t (&at)[kLanes],
               uint32_t offset) {
  R* to = warp.at<R>(slot);
  each_lane(mask, [&](uint32_t lane) {
    T value;
    memcpy(&value, reinterpret_cast<const char*>(at[lane]) + offset, sizeof value);
    to[lane] = widened<R>(value);
  });
}

template <class T, class R>
void load(Warp& warp, const Instr& in, uint32_t mask) {
  uint64_t at[kLanes];
  const uint32_t parts = in.count == 0 ? 1 : in.count;
  if (!locate(warp, in, mask, static_cast<uint32_t>(sizeof(T)) * parts, at)) return;
  if (in.count == 0) {
    if (std::is_same_v<T, R> && mask == kAllLanes && is_run(at, sizeof(T))) {
      memcpy(warp.at<char>(in.dst), reinterpret_cast<const char*>(at[0]), sizeof(T) * kLanes);
    } else {
      load_part<T, R>(warp, in.dst, mask, at, 0);
    }
    return;
  }
  const uint32_t* slots = warp.frame().function->extra.data() + in.extra;
  for (uint32_t k = 0; k < parts; ++k) {
    load_part<T, R>(warp, slots[k], mask, at, k * static_cast<uint32_t>(sizeof(T)));
  }
}

template <class T, class R>
void store_part(Warp& warp, uint32_t slot, uint32_t mask, const uint64_t (&at)[kLanes],
                uint32_t offset) {
  const R* from = warp.at<R>(slot);
  each_lane(mask, [&](uint32_t lane) {
    const T value = widened<T>(from[lane]);
    memcpy(reinterpret_cast<char*>(at[lane]) + offset, &value, sizeof value);
  });
}

template <class T, class R>
void store(Warp& warp, const Instr& in, uint32_t mask) {
  uint64_t at[kLanes];
  const uint32_t parts = in.count == 0 ? 1 : in.count;
  if (!locate(warp, in, mask, static_cast<uint32_t>(sizeof(T)) * parts, at)) return;
  if (in.count == 0) {
    if (std::is_same_v<T, R> && mask == kAllLanes && is_run(at, sizeof(T))) {
      memcpy(reinterpret_cast<char*>(at[0]), warp.at<char>(in.b), sizeof(T) * kLanes);
    } else {
      store_part<T, R>(warp, in.b, mask, at, 0);
    }
    return;
  }
  const uint32_t* slots = warp.frame().function->extra.data() + in.extra;
  for (uint32_t k = 0; k < parts; ++k) {
    store_part<T, R>(warp, slots[k], mask, at, k * static_cast<uint32_t>(sizeof(T)));
  }
}

template <class T>
Handler pick_load(uint32_t register_bytes) {
  if (register_bytes < sizeof(T)) return nullptr;
  switch (register_bytes) {
    case 1: return load<T, std::conditional_t<sizeof(T) == 1, T, uint8_t>>;
    case 2: return load<T, std::conditional_t<sizeof(T) == 2, T, uint16_t>>;
    case 4: return load<T, std::conditional_t<sizeof(T) == 4, T, uint32_t>>;
    default: return load<T, std::conditional_t<sizeof(T) == 8, T, uint64_t>>;
  }
}

template <class T>
Handler pick_store(uint32_t register_bytes) {
  if (register_bytes < sizeof(T)) return nullptr;
  switch (register_bytes) {
    case 1: return store<T, uint8_t>;
    case 2: return store<T, uint16_t>;
    case 4: return store<T, uint32_t>;
    default: return store<T, uint64_t>;
  }
}

Handler handler_for(Type type, uint32_t register_bytes, bool loads) {
  if (bytes_of(type) == 16) {
    if (register_bytes != 16) return nullptr;
    return loads ? load<Quad, Quad> : store<Quad, Quad>;
  }
  if (register_bytes > 8) return nullptr;
  const bool with_sign = is_signed(type);
  switch (bytes_of(type)) {
    case 1:
      if (!loads) return pick_store<uint8_t>(register_bytes);
      return with_sign ? pick_load<int8_t>(register_bytes) : pick_load<uint8_t>(register_bytes);
    case 2:
      if (!loads) return pick_store<uint16_t>(register_bytes);
      return with_sign ? pick_load<int16_t>(register_bytes) : pick_load<uint16_t>(register_bytes);
    case 4:
      if (!loads) return pick_store<uint32_t>(register_bytes);
      return with_sign ? pick_load<int32_t>(register_bytes) : pick_load<uint32_t>(register_bytes);
    default:
      return loads ? pick_load<uint64_t>(register_bytes) : pick_store<uint64_t>(register_bytes);
  }
}

uint32_t take_vector(Decode& d) {
  if (d.take("v2")) return 2;
  if (d.take("v4")) return 4;
  return d.take("v8") ? 8 : 0;
}

// One register or constant of the operand. *bytes, the register width, is 0 on the first call; all
// elements must have the same.
uint32_t element(Decode& d, const ast::Operand& operand, Type type, bool loads, uint32_t* bytes) {
  uint32_t own = bytes_of(type);
  uint32_t slot;
  if (loads && operand.kind == ast::Kind::kSink) {
    slot = d.builder.sink();
    own = *bytes != 0 ? *bytes : own;
  } else if (!loads && operand.kind != ast::Kind::kRegister) {
    slot = d.source(operand, type);
  } else {
    slot = d.any_register(operand, &own);
  }
  if (*bytes != 0 && *bytes != own) d.fail("mixes registers of different widths");
  *bytes = own;
  return slot;
}

uint32_t elements(Decode& d, size_t index, Type type, uint32_t vector, bool loads) {
  const ast::Operand& operand = d.operand(index);
  uint32_t bytes = 0;
  if (vector == 0) {
    const uint32_t slot = element(d, operand, type, loads, &bytes);
    (loads ? d.out.dst : d.out.b) = slot;
    return bytes;
  }
  if (operand.separator != '{' || operand.parts.size() != vector) {
    d.fail("has a vector of another length");
  }
  // Registers first: they determine the width that constants and sinks must have.
  for (const ast::Operand& part : operand.parts) {
    if (part.kind == ast::Kind::kRegister) element(d, part, type, loads, &bytes);
  }
  for (const ast::Operand& part : operand.parts) {
    d.further(element(d, part, type, loads, &bytes));
  }
  return bytes;
}

// Whether the load must see what others have written in the meantime.
bool is_fresh(const Decode& d) {
  constexpr std::string_view kWords[] = {"volatile", "relaxed", "acquire", "mmio", "cv", "cg"};
  const auto& given = d.from.modifiers;
  return std::any_of(std::begin(kWords), std::end(kWords), [&](std::string_view word) {
    return std::find(given.begin(), given.end(), word) != given.end();
  });
}

void decode_access(Decode& d, bool loads) {
  const Space space = take_space(d);
  const uint32_t vector = take_vector(d);
  const bool watches =
      loads && (space == Space::kGlobal || space == Space::kGeneric) && is_fresh(d);
  const bool hint = take_cache_words(d);
  const Type type = d.type();
  if (type == Type::kPred) d.fail("does not exist for this type");
  if (bytes_of(type) * std::max(1u, vector) > 32) d.fail("accesses more than 32 bytes");
  d.address(loads ? 1 : 0, space);
  d.out.mode |= static_cast<uint8_t>(static_cast<uint8_t>(space) << kSpaceShift);
  const uint32_t register_bytes = elements(d, loads ? 0 : 1, type, vector, loads);
  if (hint) d.source(2, Type::kB64);
  d.out.flow = watches ? Flow::kWatch : Flow::kMayFail;
  d.set(handler_for(type, register_bytes, loads));
}

}  // namespace

Space take_space(Decode& d) {
  if (d.take("global")) return Space::kGlobal;
  if (d.take("shared") || d.take("shared::cta") || d.take("shared::cluster")) return Space::kShared;
  if (d.take("param") || d.take("param::entry") || d.take("param::func")) return Space::kParam;
  if (d.take("local")) return Space::kLocal;
  return d.take("const") ? Space::kConst : Space::kGeneric;
}

// Memory order and cache hints have no effect: one thread executes everything, so memory is always
// in order, and there is no cache.
bool take_cache_words(Decode& d) {
  constexpr std::string_view kWords[] = {"weak",
                                         "volatile",
                                         "relaxed",
                                         "acquire",
                                         "release",
                                         "acq_rel",
                                         "mmio",
                                         "cta",
                                         "cluster",
                                         "gpu",
                                         "sys",
                                         "nc",
                                         "ca",
                                         "cg",
                                         "cs",
                                         "lu",
                                         "cv",
                                         "wb",
                                         "wt",
                                         "unified",
                                         "L1::evict_normal",
                                         "L1::evict_unchanged",
                                         "L1::evict_first",
                                         "L1::evict_last",
                                         "L1::no_allocate",
                                         "L2::evict_normal",
                                         "L2::evict_first",
                                         "L2::evict_last",
                                         "L2::64B",
                                         "L2::128B",
                                         "L2::256B"};
  for (const std::string_view word : kWords) d.take(word);
  return d.take("L2::cache_hint");
}

void decode_ld(Decode& d) { decode_access(d, true); }
void decode_st(Decode& d) { decode_access(d, false); }

// Fences, prefetches and hints have no effect here; they must only be well-formed.
void decode_nothing(Decode& d) {
  take_space(d);
  take_cache_words(d);
  constexpr std::string_view kWords[] = {"sc",
                                         "gl",
                                         "proxy",
                                         "alias",
                                         "async",
                                         "L1",
                                         "L2",
                                         "L2::evict_last",
                                         "L2::evict_normal",
                                         "sync",
                                         "aligned",
                                         "launch_dependents",
                                         "wait",
                                         "mbarrier_init"};
  for (const std::string_view word : kWords) d.take(word);
  for (size_t i = 0; i < d.operand_count(); ++i) d.operand(i);
  d.set([](Warp&, const Instr&, uint32_t) {});
}

}  // namespace softgpu::ptx
