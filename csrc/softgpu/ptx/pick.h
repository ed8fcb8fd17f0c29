// Picks the template instance for a PTX type by calling `make` with a value of its C++ type.
#pragma once

#include "program.h"

namespace softgpu::ptx {

template <class Make>
Handler pick_integer(Type type, Make make) {  // 16 to 64 bits; untyped bits count as unsigned
  switch (type) {
    case Type::kU16:
    case Type::kB16: return make(uint16_t{});
    case Type::kS16: return make(int16_t{});
    case Type::kU32:
    case Type::kB32: return make(uint32_t{});
    case Type::kS32: return make(int32_t{});
    case Type::kU64:
    case Type::kB64: return make(uint64_t{});
    case Type::kS64: return make(int64_t{});
    default: return nullptr;
  }
}

template <class Make>
Handler pick_wide_integer(Type type, Make make) {  // 32 and 64 bits
  return bytes_of(type) < 4 ? nullptr : pick_integer(type, make);
}

template <class Make>
Handler pick_bits(Type type, Make make) {  // any type of 16 to 64 bits
  switch (bytes_of(type)) {
    case 2: return make(uint16_t{});
    case 4: return make(uint32_t{});
    case 8: return make(uint64_t{});
    default: return nullptr;
  }
}

}  // namespace softgpu::ptx
