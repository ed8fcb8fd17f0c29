#include "bodies.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static fuzz::State state;
  state.run(bytes, size);
  return 0;
}
