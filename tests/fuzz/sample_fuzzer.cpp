#include "sample_bodies.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static fuzz::SampleRing ring;
  ring.run(bytes, size);
  return 0;
}
