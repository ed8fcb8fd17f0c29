// What the fuzzer of mangled names does with its bytes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "bodies.h"
#include "dag/mangled.h"

namespace fuzz {

// A name is either understood or yields nothing, and never has more parameters than characters.
inline void mangled_name(const uint8_t* bytes, size_t size) {
  std::vector<tandem::dag::ParameterType> found;
  bool is_open = false;
  const std::string_view name(reinterpret_cast<const char*>(bytes), size);
  const bool is_understood = tandem::dag::parameters_in(name, &found, &is_open);
  require(found.size() <= size);
  require(is_understood || (found.empty() && !is_open));
  for (const tandem::dag::ParameterType& type : found)
    require(type.is_pointer || (!type.to_const && !type.to_plain));
}

}  // namespace fuzz
