// Fat binaries: several images of one module, for several architectures.
//
//   wrapper  { u32 0x466243b1, u32 version, pointer to container, pointer }     in memory only
//   container{ u32 0xba55ed50, u16 1, u16 header bytes, u64 bytes that follow } entry*
//   entry    { u16 kind, u16, u32 header bytes, u64 payload bytes, ... }        payload
#pragma once

#include <cstdint>
#include <vector>

#include "bytes.h"

namespace softgpu {

enum class FatbinKind : uint16_t { kPtx = 1, kElf = 2 };
enum class Compression { kNone, kLz4, kZstd };

struct FatbinEntry {
  FatbinKind kind;
  uint32_t arch;  // 90 for sm_90
  Compression compression;
  Bytes payload;
  size_t plain_bytes;  // after decompression
};

bool is_fatbin(Bytes image);
bool is_fatbin_wrapper(Bytes image);
// The length that the container declares, but no more than `image` holds.
size_t fatbin_length(Bytes image);
// Reads the entries of known kinds, in file order; returns false if the container is broken.
bool read_fatbin(Bytes image, std::vector<FatbinEntry>* entries);

}  // namespace softgpu
