#include "name_bodies.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  fuzz::mangled_name(bytes, size);
  return 0;
}
