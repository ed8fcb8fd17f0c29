// MPS settings as users write them, parsed the same way by the control program and its clients.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "protocol.h"

namespace tandem::softgpu {

// The directory of the control program's socket.
inline std::string mps_pipe_directory() {
  const char* named = getenv("CUDA_MPS_PIPE_DIRECTORY");
  return named && *named ? named : "/tmp/nvidia-mps";
}

// Parses an active thread percentage in (0, 100]; returns 0 for anything else.
inline double parse_mps_percentage(const char* text) {
  if (!text || !*text) return 0;
  char* end = nullptr;
  const double percent = strtod(text, &end);
  return *end == '\0' && percent > 0 && percent <= 100 ? percent : 0;
}

// Parses "1G", "512M", "4096K" or a number of bytes; returns 0 for anything else.
inline uint64_t parse_mps_bytes(const std::string& text) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return 0;
  char* end = nullptr;
  const uint64_t count = strtoull(text.c_str(), &end, 10);
  int shift = 0;
  if (*end != '\0') {
    const char* units = "KMG";
    const char* unit = strchr(units, *end >= 'a' ? *end - ('a' - 'A') : *end);
    if (!unit) return 0;
    shift = 10 * static_cast<int>(unit - units + 1);
    const char* rest = end + 1;
    if (*rest != '\0' && strcmp(rest, "B") != 0) return 0;
  }
  return count > (UINT64_MAX >> shift) ? 0 : count << shift;
}

// Memory limits by device ordinal; kNever: no limit.
struct MpsMemoryLimits {
  uint64_t bytes[kMaxDevices];
  MpsMemoryLimits() {
    for (uint64_t& limit : bytes) limit = kNever;
  }
};

// Parses "0=1G,1=512M". Returns false, leaving `limits` unchanged, if any part of it is wrong.
inline bool parse_mps_limits(const std::string& text, MpsMemoryLimits* limits) {
  MpsMemoryLimits read = *limits;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const size_t equals = text.find('=', at);
    if (equals == std::string::npos || equals == at || equals > comma) return false;
    char* end = nullptr;
    const uint64_t device = strtoull(text.c_str() + at, &end, 10);
    const uint64_t bytes = parse_mps_bytes(text.substr(equals + 1, comma - equals - 1));
    if (end != text.c_str() + equals || device >= kMaxDevices || bytes == 0) return false;
    read.bytes[device] = bytes;
    at = comma + 1;
  }
  *limits = read;
  return true;
}

}  // namespace tandem::softgpu
