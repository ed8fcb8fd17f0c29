#include "dag_bodies.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  fuzz::Dag dag((uint64_t{1} << 32) - 100);
  dag.run(bytes, size);
  return 0;
}
