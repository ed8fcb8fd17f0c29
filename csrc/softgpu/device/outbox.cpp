#include "outbox.h"

#include <cstring>
#include <utility>

namespace tandem::softgpu {

void Outbox::add_text(QueryReply reply, std::string_view text) {
  text = text.substr(0, kMaxPacketBytes - sizeof reply);
  const size_t padded = (text.size() + 7) / 8 * 8;
  reply.header.type = static_cast<uint16_t>(Type::kQueryReply);
  reply.header.size = static_cast<uint16_t>(sizeof reply + padded);
  reply.header.reserved = 0;
  reply.text_bytes = static_cast<uint32_t>(text.size());
  append(&reply, sizeof reply, text);
}

std::vector<Bytes> Outbox::take() {
  bytes_ = 0;
  return std::exchange(packets_, {});
}

void Outbox::append(const void* message, size_t bytes, std::string_view text) {
  const size_t padded = bytes + (text.size() + 7) / 8 * 8;
  if (packets_.empty() || packets_.back().size() + padded > kMaxPacketBytes) {
    packets_.emplace_back();
  }
  Bytes& packet = packets_.back();
  const size_t at = packet.size();
  bytes_ += padded;
  packet.resize(at + padded);
  std::memcpy(packet.data() + at, message, bytes);
  if (!text.empty()) std::memcpy(packet.data() + at + bytes, text.data(), text.size());
}

}  // namespace tandem::softgpu
