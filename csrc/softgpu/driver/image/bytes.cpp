#include "bytes.h"

#include <cstdint>
#include <cstdio>

namespace softgpu {

Bytes readable_from(const void* begin) {
  const auto at = reinterpret_cast<uintptr_t>(begin);
  Bytes found{static_cast<const char*>(begin), 0};
  FILE* maps = fopen("/proc/self/maps", "re");
  if (!maps) return found;
  char line[512], access[8];
  unsigned long from, to;
  while (fgets(line, sizeof line, maps)) {
    if (sscanf(line, "%lx-%lx %7s", &from, &to, access) != 3) continue;
    const uintptr_t reached = at + found.size;
    if (to <= reached) continue;
    if (from > reached || access[0] != 'r') break;
    found.size = to - at;  // an adjacent mapping may continue where this one ends
  }
  fclose(maps);
  return found;
}

}  // namespace softgpu
