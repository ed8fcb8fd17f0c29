// The bytes that a Work carries.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace softgpu {

// A few bytes are stored inside the object; more are shared by all copies, so copying is cheap
// either way. The bytes are written once, right after `reserve`, and do not change afterwards.
class Payload {
 public:
  // Leaves the bytes inside uninitialised: they are written before they are read.
  Payload() {}
  Payload(const Payload& other) { *this = other; }
  Payload& operator=(const Payload& other) {
    if (this == &other) return *this;
    bytes_ = other.bytes_;
    many_ = other.many_;
    if (!many_ && bytes_ > 0) memcpy(few_, other.few_, bytes_);
    return *this;
  }

  // Returns where to write `bytes` bytes; null if memory for them cannot be allocated.
  char* reserve(size_t bytes) {
    bytes_ = bytes;
    many_.reset();
    if (bytes <= sizeof few_) return few_;
    many_.reset(static_cast<char*>(malloc(bytes)), free);
    return many_.get();
  }
  // Copies of this object share the address only if there are more than kInsideBytes bytes.
  const char* data() const { return many_ ? many_.get() : few_; }
  size_t size() const { return bytes_; }

  static constexpr size_t kInsideBytes = 256;

 private:
  size_t bytes_ = 0;
  std::shared_ptr<char> many_;
  alignas(16) char few_[kInsideBytes];
};

}  // namespace softgpu
