// What the PTX fuzzer does with its bytes; libFuzzer and tests/cpp/ptx drive it.
#pragma once

#include <new>
#include <string_view>

#include "ptx/load.h"

namespace fuzz {

inline void require_ptx(bool promise) {
  if (!promise) __builtin_trap();
}

// Any text is either refused with a message that names a line, or becomes code whose jumps and
// tables are within bounds.
inline bool ptx_text(std::string_view text) {
  namespace ptx = softgpu::ptx;
  std::unique_ptr<ptx::Program> program;
  try {
    program = ptx::load(text);
  } catch (const ptx::Invalid& refused) {
    require_ptx(std::string_view(refused.what()).find("line ") == 0);
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  }
  for (const auto& [name, function] : program->functions) {
    const size_t length = function->code.size();
    require_ptx(length > 0 && function->code.back().flow == ptx::Flow::kReturn);
    for (const ptx::Instr& in : function->code) {
      require_ptx(in.target < length && in.reconverge < length);
      require_ptx(in.guard == ptx::kNoSlot || in.guard + 4 <= function->register_bytes);
      require_ptx(in.count == 0 || in.extra + size_t{in.count} <= function->extra.size() ||
                  in.flow == ptx::Flow::kNext);
    }
    for (const ptx::Constant& constant : function->constants) {
      require_ptx(constant.offset + size_t{constant.bytes} * ptx::kLanes <=
                  function->register_bytes);
    }
  }
  return true;
}

}  // namespace fuzz
