// Decoders for the compression formats of fat binary entries.
#pragma once

#include <string>

#include "bytes.h"

namespace softgpu {

// Decodes a block of the LZ4 format to exactly `bytes` bytes; returns false for anything else.
bool decode_lz4(Bytes block, size_t bytes, std::string* out);

enum class ZstdResult { kDecoded, kBroken, kNoLibrary };
// Uses the machine's libzstd.so.1, if it has one.
ZstdResult decode_zstd(Bytes frame, size_t bytes, std::string* out);

}  // namespace softgpu
