// The table behind cuGetProcAddress, sorted by base name, then version.
#pragma once

#include <cstdint>

namespace softgpu {

struct NameRow {
  const char* base;
  void* function;
  int since;        // CUDA version, as 1000 * major + 10 * minor
  bool per_thread;  // a _ptsz or _ptds flavour
};
const NameRow* name_rows_begin();
const NameRow* name_rows_end();

}  // namespace softgpu
