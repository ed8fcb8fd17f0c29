// A set of SMs of one device, by index.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>

#include "protocol.h"

namespace tandem::softgpu {

using SmSet = std::bitset<kMaxSms>;

inline uint32_t count_of(const SmSet& set) { return static_cast<uint32_t>(set.count()); }

inline SmSet first_sms(uint32_t count) {
  SmSet set;
  for (uint32_t i = 0; i < count && i < kMaxSms; ++i) set.set(i);
  return set;
}

inline SmSet sm_set_of(const uint64_t (&words)[kMaxSms / 64]) {
  SmSet set;
  for (uint32_t i = 0; i < kMaxSms; ++i) set[i] = (words[i / 64] >> (i % 64)) & 1;
  return set;
}

inline void write_words(const SmSet& set, uint64_t (*words)[kMaxSms / 64]) {
  for (uint32_t i = 0; i < kMaxSms; ++i) (*words)[i / 64] |= uint64_t{set[i]} << (i % 64);
}

// Indices as text, with runs as first and last: "0-7,16".
inline std::string text_of(const SmSet& set) {
  std::string text;
  for (size_t i = 0; i < set.size(); ++i) {
    if (!set[i]) continue;
    size_t last = i;
    while (last + 1 < set.size() && set[last + 1]) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(i);
    if (last > i) text += '-' + std::to_string(last);
    i = last;
  }
  return text;
}

}  // namespace tandem::softgpu
