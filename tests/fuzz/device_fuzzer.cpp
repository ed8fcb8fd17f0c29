#include "device_bodies.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  fuzz::device(bytes, size);
  return 0;
}
