#include "jit_options.h"

#include <algorithm>
#include <cstring>

namespace softgpu {
namespace {

unsigned int as_uint(const void* value) {
  return static_cast<unsigned int>(reinterpret_cast<uintptr_t>(value));
}

bool for_whole_link_only(CUjit_option option) {
  switch (option) {
    case CU_JIT_WALL_TIME:
    case CU_JIT_INFO_LOG_BUFFER:
    case CU_JIT_ERROR_LOG_BUFFER:
    case CU_JIT_TARGET_FROM_CUCONTEXT:
    case CU_JIT_TARGET: return true;
    default: return false;
  }
}

}  // namespace

CUresult JitOptions::read(JitOptionList list, Use use) {
  if (list.count > 0 && (!list.options || !list.values)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned int i = 0; i < list.count; ++i) {
    if (const CUresult bad = take(list.options[i], list.values + i, use)) return bad;
  }
  return targeted_ && threads_ ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult JitOptions::take(CUjit_option option, void** value, Use use) {
  if (option < 0 || option >= CU_JIT_NUM_OPTIONS) return CUDA_ERROR_INVALID_VALUE;
  if (use == kLinkInput && for_whole_link_only(option)) return CUDA_ERROR_INVALID_VALUE;
  switch (option) {
    case CU_JIT_WALL_TIME: wall_time_ = value; break;
    case CU_JIT_INFO_LOG_BUFFER: info_.text = static_cast<char*>(*value); break;
    case CU_JIT_ERROR_LOG_BUFFER: error_.text = static_cast<char*>(*value); break;
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
      info_.size = value;
      info_.capacity = as_uint(*value);
      break;
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
      error_.size = value;
      error_.capacity = as_uint(*value);
      break;
    case CU_JIT_LOG_VERBOSE: verbose_ = as_uint(*value) != 0; break;
    case CU_JIT_TARGET: targeted_ = true; break;
    case CU_JIT_THREADS_PER_BLOCK: threads_ = true; break;
    case CU_JIT_OPTIMIZATION_LEVEL:
      return as_uint(*value) > 4 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_JIT_FALLBACK_STRATEGY:  // the linker requires exact matches
      return use != kLoad || as_uint(*value) > CU_PREFER_BINARY ? CUDA_ERROR_INVALID_VALUE
                                                                : CUDA_SUCCESS;
    case CU_JIT_CACHE_MODE:
      return as_uint(*value) > CU_JIT_CACHE_OPTION_CA ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    default: break;  // for a code generator, which does not exist here
  }
  return CUDA_SUCCESS;
}

void JitOptions::Buffer::fill(const std::string& message) const {
  unsigned int written = 0;
  if (text && capacity > 0) {
    written = static_cast<unsigned int>(std::min<size_t>(message.size(), capacity - 1));
    memcpy(text, message.data(), written);
    text[written] = '\0';
  }
  if (size) *size = reinterpret_cast<void*>(uintptr_t{written});
}

void JitOptions::report(const LoadLog& log, uint64_t wall_ns) const {
  info_.fill(log.info);
  error_.fill(log.error);
  if (wall_time_) {
    const float wall_ms = static_cast<float>(wall_ns) / 1e6F;
    memcpy(wall_time_, &wall_ms, sizeof wall_ms);
  }
}

}  // namespace softgpu
