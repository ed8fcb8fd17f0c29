// Outgoing messages of one client, packed into as few packets as possible.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "protocol.h"

namespace tandem::softgpu {

using Bytes = std::vector<uint8_t>;

class Outbox {
 public:
  template <typename Message>
  void add(Type type, Message message) {
    message.header.type = static_cast<uint16_t>(type);
    message.header.size = static_cast<uint16_t>(sizeof message);
    message.header.reserved = 0;
    append(&message, sizeof message, {});
  }
  void add_text(QueryReply reply, std::string_view text);

  bool empty() const { return packets_.empty(); }
  size_t bytes() const { return bytes_; }
  std::vector<Bytes> take();

 private:
  void append(const void* message, size_t bytes, std::string_view text);

  std::vector<Bytes> packets_;
  size_t bytes_ = 0;
};

}  // namespace tandem::softgpu
