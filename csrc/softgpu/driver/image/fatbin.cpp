#include "fatbin.h"

namespace softgpu {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1, kMagic = 0xba55ed50;
constexpr uint64_t kLz4Flag = 0x2000, kZstdFlag = 0x8000;

struct ContainerHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;
};

struct EntryHeader {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t padded_bytes;
  uint32_t compressed_bytes, options_offset;
  uint16_t minor, major;
  uint32_t arch;
  uint32_t name_offset, name_bytes;
  uint64_t flags, reserved, plain_bytes;
};
static_assert(sizeof(ContainerHeader) == 16 && sizeof(EntryHeader) == 64);

template <class T>
bool begins_with(Bytes image, T magic) {
  T first;
  return image.read(0, &first) && first == magic;
}

bool describe(const EntryHeader& header, Bytes payload, FatbinEntry* entry) {
  entry->kind = static_cast<FatbinKind>(header.kind);
  entry->arch = header.arch;
  entry->payload = payload;
  entry->plain_bytes = payload.size;
  entry->compression = Compression::kNone;
  if (header.flags & kLz4Flag) entry->compression = Compression::kLz4;
  if (header.flags & kZstdFlag) entry->compression = Compression::kZstd;
  if (entry->compression == Compression::kNone) return true;
  entry->plain_bytes = header.plain_bytes;
  return payload.part(0, header.compressed_bytes, &entry->payload);
}

}  // namespace

bool is_fatbin(Bytes image) { return begins_with(image, kMagic); }
bool is_fatbin_wrapper(Bytes image) { return begins_with(image, kWrapperMagic); }

size_t fatbin_length(Bytes image) {
  ContainerHeader container;
  Bytes body;
  if (!image.read(0, &container) || !image.part(container.header_bytes, container.bytes, &body)) {
    return image.size;
  }
  return container.header_bytes + body.size;
}

bool read_fatbin(Bytes image, std::vector<FatbinEntry>* entries) {
  ContainerHeader container;
  Bytes body;
  if (!image.read(0, &container) || container.magic != kMagic ||
      container.header_bytes < sizeof container ||
      !image.part(container.header_bytes, container.bytes, &body)) {
    return false;
  }
  for (size_t at = 0; at < body.size;) {
    EntryHeader header;
    Bytes payload;
    if (!body.read(at, &header) || header.header_bytes < sizeof header ||
        !body.holds(at, header.header_bytes) ||
        !body.part(at + header.header_bytes, header.padded_bytes, &payload)) {
      return false;
    }
    at += header.header_bytes + header.padded_bytes;
    const bool known = header.kind == static_cast<uint16_t>(FatbinKind::kPtx) ||
                       header.kind == static_cast<uint16_t>(FatbinKind::kElf);
    if (!known) continue;
    FatbinEntry entry;
    if (!describe(header, payload, &entry)) return false;
    entries->push_back(entry);
  }
  return true;
}

}  // namespace softgpu
