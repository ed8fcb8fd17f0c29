// A run of untrusted bytes: every read is checked against its end.
#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

namespace softgpu {

struct Bytes {
  const char* data = nullptr;
  size_t size = 0;

  bool holds(size_t at, size_t bytes) const { return at <= size && bytes <= size - at; }

  template <class T>
  bool read(size_t at, T* value) const {
    if (!holds(at, sizeof *value)) return false;
    memcpy(value, data + at, sizeof *value);
    return true;
  }
  bool part(size_t at, size_t bytes, Bytes* out) const {
    if (!holds(at, bytes)) return false;
    *out = {data + at, bytes};
    return true;
  }
  // Finds the zero-terminated text that begins at `at`; fails if no zero follows.
  bool text(size_t at, std::string_view* out) const {
    const void* end = at < size ? memchr(data + at, 0, size - at) : nullptr;
    if (!end) return false;
    *out = {data + at, static_cast<size_t>(static_cast<const char*>(end) - (data + at))};
    return true;
  }
};

// The readable memory from a pointer on: the only bound for an image of unknown size.
Bytes readable_from(const void* begin);

}  // namespace softgpu
