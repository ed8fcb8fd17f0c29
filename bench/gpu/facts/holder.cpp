// Holds device memory filled with a pattern, until it is killed. Checks the pattern for each line
// on stdin.
//
//   holder IMAGE nothing | linear | mapped BYTES
#include "chunks.h"
#include "pattern.h"
#include "talk.h"

#include <optional>

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string kind = argv[2];
  constexpr size_t kPiece = 32 << 20;
  const size_t bytes = std::max<size_t>(strtoull(argv[3], nullptr, 10) / kPiece, 1) * kPiece;
  const CUmodule module = make_module(argv[1]);
  CUdeviceptr at = 0;
  if (kind == "nothing") {
    check(DRIVER(cuCtxSynchronize, "cuCtxSynchronize")(), "synchronize");
    event("ready").print();
    while (next_order()) {
    }
    return 0;
  }
  std::optional<Chunks> chunks;  // not with plain memory: reserved ranges may disturb a checkpoint
  if (kind == "mapped") {
    chunks.emplace(bytes, kPiece, true);
    chunks->map_all();
    at = chunks->at(0);
  } else {
    check(DRIVER(cuMemAlloc_v2, "cuMemAlloc")(&at, bytes), "cuMemAlloc");
  }
  Pattern pattern(module);
  pattern.write(at, bytes);
  event("ready").add("bytes", (uint64_t)bytes).print();
  while (next_order()) event("checked").add("wrong_words", pattern.wrong_words(at, bytes)).print();
  return 0;
}
