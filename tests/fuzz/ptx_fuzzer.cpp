#include <cstddef>
#include <cstdint>

#include "ptx_bodies.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  fuzz::ptx_text({reinterpret_cast<const char*>(bytes), size});
  return 0;
}
