// What fat binaries compress their entries with.
#pragma once

#include <string>

#include "bytes.h"

namespace softgpu {

// A block of the LZ4 format that decodes to exactly `bytes` bytes; false for anything else.
bool decode_lz4(Bytes block, size_t bytes, std::string* out);

enum class ZstdResult { kDecoded, kBroken, kNoLibrary };
// By the machine's libzstd.so.1, where there is one.
ZstdResult decode_zstd(Bytes frame, size_t bytes, std::string* out);

}  // namespace softgpu
