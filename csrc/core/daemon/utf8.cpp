#include "daemon/utf8.h"

#include <cstdint>

namespace tandem::daemon {
namespace {

struct Lead {
  size_t bytes;        // of the whole character; 0 = not a first byte
  uint8_t second_min;  // the range of the second byte excludes overlong forms and surrogates
  uint8_t second_max;
};

Lead lead(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xc2) return {0, 0, 0};
  if (byte < 0xe0) return {2, 0x80, 0xbf};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};
  if (byte == 0xed) return {3, 0x80, 0x9f};
  if (byte < 0xf0) return {3, 0x80, 0xbf};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte < 0xf4) return {4, 0x80, 0xbf};
  if (byte == 0xf4) return {4, 0x80, 0x8f};
  return {0, 0, 0};
}

// How many of the first `bytes` bytes fit one character; `whole` is its full length, 0 if none.
size_t matching(const char* text, size_t bytes, size_t* whole) {
  const Lead first = lead(static_cast<uint8_t>(text[0]));
  *whole = first.bytes;
  if (first.bytes == 0) return 0;
  size_t matched = 1;
  while (matched < first.bytes && matched < bytes) {
    const auto byte = static_cast<uint8_t>(text[matched]);
    const uint8_t low = matched == 1 ? first.second_min : uint8_t{0x80};
    const uint8_t high = matched == 1 ? first.second_max : uint8_t{0xbf};
    if (byte < low || byte > high) break;
    ++matched;
  }
  return matched;
}

}  // namespace

size_t valid_utf8_bytes(const char* text, size_t bytes) {
  size_t valid = 0;
  while (valid < bytes) {
    size_t whole = 0;
    if (matching(text + valid, bytes - valid, &whole) != whole || whole == 0) break;
    valid += whole;
  }
  return valid;
}

bool is_cut_character(const char* text, size_t bytes) {
  if (bytes == 0) return false;
  size_t whole = 0;
  return matching(text, bytes, &whole) == bytes && bytes < whole;
}

}  // namespace tandem::daemon
