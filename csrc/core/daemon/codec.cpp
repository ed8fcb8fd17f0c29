#include "daemon/codec.h"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "daemon/utf8.h"
#include "shm_layout.h"

namespace tandem::daemon {
namespace {

[[gnu::format(printf, 1, 2)]] Problem problem(const char* format, ...) {
  Problem out;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(out.text, sizeof(out.text), format, arguments);
  va_end(arguments);
  return out;
}

struct Limit {
  const char* field;
  uint32_t value;
  uint32_t max;
};

template <size_t N>
Problem check_limits(const char* message, const Limit (&limits)[N]) {
  for (const Limit& limit : limits) {
    if (limit.value > limit.max) {
      return problem("%s: %s is %u, more than %u", message, limit.field, limit.value, limit.max);
    }
  }
  return {};
}

// A longer text is cut at a character boundary.
template <size_t N>
void copy_text(std::string_view text, char (&out)[N]) {
  std::memcpy(out, text.data(), valid_utf8_bytes(text.data(), std::min(text.size(), N - 1)));
}

enum class Lines { kOne, kAny };

// Names are printed in tables and logs, so they hold no control characters. A command line may
// contain newlines.
Problem check_characters(const char* message, const char* field, const char* text, size_t length) {
  for (size_t i = 0; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f) {
      return problem("%s: %s has control character 0x%02x at byte %zu", message, field, byte, i);
    }
  }
  return {};
}

// Senders truncate by bytes and may cut the last character of a full field in two: it is dropped.
Problem check_text(const char* message, const char* field, char* text, size_t bytes, Lines lines) {
  const size_t length = strnlen(text, bytes);
  if (length == bytes) {
    return problem("%s: %s is not terminated within %zu bytes", message, field, bytes);
  }
  const size_t valid = valid_utf8_bytes(text, length);
  const bool cut = length == bytes - 1 && is_cut_character(text + valid, length - valid);
  if (valid != length && !cut) {
    return problem("%s: %s is not UTF-8 at byte %zu (0x%02x)", message, field, valid,
                   static_cast<unsigned char>(text[valid]));
  }
  std::memset(text + valid, 0, bytes - valid);
  return lines == Lines::kOne ? check_characters(message, field, text, valid) : Problem{};
}

Problem check_request(const char* message, wire::Request* request) {
  const Limit limits[] = {
      {"job_class", request->job_class, static_cast<uint32_t>(shm::JobClass::kBatch)},
      {"sm_percent", request->sm_percent, 100},
      {"preemptible", request->preemptible, 2},
      {"memory_percent", request->memory_percent, 100},
      {"swappable", request->swappable, 3},
  };
  if (Problem p = check_limits(message, limits)) return p;
  if (Problem p = check_text(message, "name", request->name, sizeof(request->name), Lines::kOne)) {
    return p;
  }
  return check_text(message, "group", request->group, sizeof(request->group), Lines::kOne);
}

Problem check_space(const char* message, const wire::Space& space) {
  const Limit limits[] = {
      {"isolation", space.isolation, static_cast<uint32_t>(wire::Isolation::kMig)},
  };
  return check_limits(message, limits);
}

Problem check_hello(wire::Hello* hello) {
  const Limit limits[] = {
      {"layout_min", hello->layout_min, hello->layout_max},
      {"clock", hello->clock, static_cast<uint32_t>(wire::ClockKind::kSoftGpuVirtual)},
      {"device_count", hello->device_count, wire::kMaxDevices},
      {"mps_sms", hello->mps_sms, wire::kAllSms},
  };
  if (Problem p = check_limits("HELLO", limits)) return p;
  if (Problem p = check_space("HELLO", hello->space)) return p;
  return check_request("HELLO", &hello->request);
}

Problem check_register(wire::Register* request) {
  if (Problem p = check_request("REGISTER", &request->request)) return p;
  if (Problem p = check_space("REGISTER", request->space)) return p;
  if (Problem p = check_text("REGISTER", "gpu", request->gpu, sizeof(request->gpu), Lines::kOne)) {
    return p;
  }
  return check_text("REGISTER", "command", request->command, sizeof(request->command), Lines::kAny);
}

const char* name_of(wire::Type type) {
  switch (type) {
    case wire::Type::kHello: return "HELLO";
    case wire::Type::kWelcome: return "WELCOME";
    case wire::Type::kMapped: return "MAPPED";
    case wire::Type::kPresence: return "PRESENCE";
    case wire::Type::kPresenceGone: return "PRESENCE_GONE";
    case wire::Type::kRefused: return "REFUSED";
    case wire::Type::kRegister: return "REGISTER";
    case wire::Type::kRegistered: return "REGISTERED";
    case wire::Type::kShared: return "SHARED";
    case wire::Type::kUses: return "USES";
    case wire::Type::kHostPool: return "HOST_POOL";
    case wire::Type::kSwap: return "SWAP";
    case wire::Type::kHostFile: return "HOST_FILE";
    case wire::Type::kHostBack: return "HOST_BACK";
  }
  return nullptr;
}

Problem check_header(const wire::Header& header, size_t bytes) {
  if (header.magic != wire::kMagic) {
    return problem("not a Tandem message: magic is 0x%08x, not 0x%08x", header.magic, wire::kMagic);
  }
  if (header.version != wire::kProtocolVersion) {
    return problem("protocol version %u, this daemon speaks %u", header.version,
                   wire::kProtocolVersion);
  }
  if (header.size != bytes) {
    return problem("message says it has %u bytes, the packet has %zu", header.size, bytes);
  }
  return {};
}

// Takes the part of a message that this version knows; what an older sender leaves out is 0.
// `least` is the size in the first version.
template <typename T>
Problem take(const void* packet, size_t bytes, T* out, size_t least = sizeof(T)) {
  const auto type = static_cast<wire::Type>(static_cast<const wire::Header*>(packet)->type);
  if (bytes < least) {
    return problem("%s has %zu bytes, fewer than %zu", name_of(type), bytes, least);
  }
  *out = {};
  std::memcpy(out, packet, bytes < sizeof(T) ? bytes : sizeof(T));
  return {};
}

Problem wrong_type(uint16_t type) {
  const char* name = name_of(static_cast<wire::Type>(type));
  if (!name) return problem("unknown message type %u", type);
  return problem("message type %u (%s) is sent by the daemon, not to it", type, name);
}

template <typename T>
T start(wire::Type type) {
  T out{};
  out.header = {wire::kMagic, wire::kProtocolVersion, static_cast<uint16_t>(type), sizeof(T), 0};
  return out;
}

}  // namespace

Problem decode(const void* packet, size_t bytes, Message* out) {
  wire::Header header;
  if (bytes < sizeof(header)) {
    return problem("packet of %zu bytes is shorter than a header of %zu", bytes, sizeof(header));
  }
  if (bytes > wire::kMaxMessageBytes) {
    return problem("packet of %zu bytes is longer than %u", bytes, wire::kMaxMessageBytes);
  }
  std::memcpy(&header, packet, sizeof(header));
  if (Problem p = check_header(header, bytes)) return p;
  out->type = static_cast<wire::Type>(header.type);
  switch (out->type) {
    case wire::Type::kHello: {
      const Problem p = take(packet, bytes, &out->hello, offsetof(wire::Hello, promise));
      return p ? p : check_hello(&out->hello);
    }
    case wire::Type::kRegister: {
      const Problem p = take(packet, bytes, &out->request, offsetof(wire::Register, promise));
      return p ? p : check_register(&out->request);
    }
    case wire::Type::kMapped: return {};
    case wire::Type::kShared: {
      const Problem p = take(packet, bytes, &out->shared);
      return p || out->shared.key ? p : problem("SHARED: key is 0");
    }
    case wire::Type::kUses: return take(packet, bytes, &out->uses);
    default: return wrong_type(header.type);
  }
}

Problem encode_welcome(uint64_t process_id, uint64_t job_id, uint32_t clock,
                       uint32_t layout_version, bool swappable, wire::Welcome* out) {
  const Limit limits[] = {
      {"clock", clock, static_cast<uint32_t>(wire::ClockKind::kSoftGpuVirtual)},
      {"layout_version", layout_version, shm::kLayoutVersion},
  };
  if (Problem p = check_limits("WELCOME", limits)) return p;
  *out = start<wire::Welcome>(wire::Type::kWelcome);
  out->layout_version = layout_version;
  out->clock = clock;
  out->process_id = process_id;
  out->job_id = job_id;
  out->state_bytes = shm::kStateBytes;
  out->features = wire::kFeatureShared | wire::kFeatureUses | wire::kFeatureOrder |
                  wire::kFeatureSamples | (swappable ? wire::kFeatureSwap : 0);
  return {};
}

Problem encode_refused(uint32_t code, std::string_view reason, wire::Refused* out) {
  const auto last = static_cast<uint32_t>(wire::RefusalCode::kNotYet);
  if (code == 0 || code > last) return problem("REFUSED: code is %u, not 1 to %u", code, last);
  *out = start<wire::Refused>(wire::Type::kRefused);
  out->code = code;
  copy_text(reason, out->reason);
  return {};
}

Problem encode_registered(uint64_t job_id, uint32_t job_class, std::string_view environment,
                          std::string_view told, wire::Registered* out) {
  if (environment.size() >= sizeof(out->environment))
    return problem("REGISTERED: environment has %zu bytes, more than %zu", environment.size(),
                   sizeof(out->environment) - 1);
  *out = start<wire::Registered>(wire::Type::kRegistered);
  out->job_id = job_id;
  out->job_class = job_class;
  std::memcpy(out->environment, environment.data(), environment.size());
  copy_text(told, out->told);
  return {};
}

Problem encode_host_pool(uint64_t bytes, wire::HostPool* out) {
  if (bytes == 0 || bytes % shm::kSwapUnit != 0)
    return problem("HOST_POOL: bytes is %" PRIu64 ", not a multiple of %" PRIu64, bytes,
                   shm::kSwapUnit);
  *out = start<wire::HostPool>(wire::Type::kHostPool);
  out->bytes = bytes;
  return {};
}

wire::Swap encode_swap() { return start<wire::Swap>(wire::Type::kSwap); }

Problem encode_host_file(uint32_t order, uint32_t since, uint64_t pool, wire::HostFile* out) {
  if (order == 0) return problem("HOST_FILE: order is 0");
  if (pool == 0) return problem("HOST_FILE: pool is 0");
  *out = start<wire::HostFile>(wire::Type::kHostFile);
  out->order = order;
  out->since = since;
  out->pool = pool;
  return {};
}

Problem encode_host_back(uint32_t order, uint32_t since, uint64_t pool, wire::HostBack* out) {
  if (order == 0) return problem("HOST_BACK: order is 0");
  if (pool == 0) return problem("HOST_BACK: pool is 0");
  *out = start<wire::HostBack>(wire::Type::kHostBack);
  out->order = order;
  out->since = since;
  out->pool = pool;
  return {};
}

Problem encode_presence(uint32_t index, uint32_t job_class, bool gone, wire::Presence* out) {
  const Limit limits[] = {
      {"index", index, shm::kPresenceMax - 1},
      {"job_class", job_class, static_cast<uint32_t>(shm::JobClass::kBatch)},
  };
  if (Problem p = check_limits("PRESENCE", limits)) return p;
  *out = start<wire::Presence>(gone ? wire::Type::kPresenceGone : wire::Type::kPresence);
  out->index = index;
  out->job_class = job_class;
  return {};
}

}  // namespace tandem::daemon
