#include "decompress.h"

#include <dlfcn.h>

#include <cstdint>

namespace softgpu {
namespace {

// No module that a compiler emits is larger; a broken size field often is.
constexpr size_t kMaxBytes = size_t{1} << 30;

// A length of 15 continues in the following bytes, up to one that is not 255.
bool read_length(Bytes block, size_t* at, size_t* length) {
  if (*length != 15) return true;
  uint8_t more = 255;
  while (more == 255) {
    if (!block.read((*at)++, &more)) return false;
    *length += more;
  }
  return true;
}

}  // namespace

bool decode_lz4(Bytes block, size_t bytes, std::string* out) {
  constexpr size_t kShortestMatch = 4;
  if (bytes > kMaxBytes) return false;
  out->clear();
  for (size_t at = 0; at < block.size;) {
    uint8_t token;
    block.read(at++, &token);
    size_t literals = token >> 4;
    if (!read_length(block, &at, &literals) || !block.holds(at, literals) ||
        literals > bytes - out->size()) {
      return false;
    }
    out->append(block.data + at, literals);
    at += literals;
    if (at == block.size) break;  // the last sequence is literals only

    uint16_t distance;
    if (!block.read(at, &distance)) return false;
    at += sizeof distance;
    size_t match = token & 15U;
    if (!read_length(block, &at, &match)) return false;
    match += kShortestMatch;
    if (distance == 0 || distance > out->size() || match > bytes - out->size()) return false;
    // Byte by byte: a match may extend into the bytes it produces.
    for (size_t from = out->size() - distance; match > 0; --match) out->push_back((*out)[from++]);
  }
  return out->size() == bytes;
}

ZstdResult decode_zstd(Bytes frame, size_t bytes, std::string* out) {
  using Decompress = size_t (*)(void*, size_t, const void*, size_t);
  static const auto decompress = [] {
    void* library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<Decompress>(library ? dlsym(library, "ZSTD_decompress") : nullptr);
  }();
  if (!decompress) return ZstdResult::kNoLibrary;
  if (bytes > kMaxBytes) return ZstdResult::kBroken;
  out->resize(bytes);
  const size_t made = decompress(out->data(), bytes, frame.data, frame.size);
  return made == bytes ? ZstdResult::kDecoded : ZstdResult::kBroken;
}

}  // namespace softgpu
