// The daemon's end of the attach socket: parses what shims and `tandem run` send and builds the
// answers. A packet is accepted only after every field has been checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "wire.h"

namespace tandem::daemon {

// What is wrong with a packet or an argument: lower case, with the value. Empty if nothing is.
struct [[nodiscard]] Problem {
  char text[192] = {};
  explicit operator bool() const { return text[0] != '\0'; }
};

struct Message {
  wire::Type type;         // kHello, kRegister, kMapped, kShared or kUses
  wire::Hello hello;       // strings are NUL-terminated valid UTF-8, counts within their arrays
  wire::Register request;  // likewise
  wire::Shared shared;
  wire::Uses uses;
};

Problem decode(const void* packet, size_t bytes, Message* out);

Problem encode_welcome(uint64_t process_id, uint64_t job_id, uint32_t clock,
                       uint32_t layout_version, bool swappable, wire::Welcome* out);
// A longer reason is cut at a character boundary.
Problem encode_refused(uint32_t code, std::string_view reason, wire::Refused* out);
// `environment`: lines NAME=VALUE, at most kEnvironmentBytes - 1 bytes. `told` is cut like a
// reason.
Problem encode_registered(uint64_t job_id, uint32_t job_class, std::string_view environment,
                          std::string_view told, wire::Registered* out);
// `bytes`: positive, a multiple of 2 MiB.
Problem encode_host_pool(uint64_t bytes, wire::HostPool* out);
wire::Swap encode_swap();
// `order` and `pool`: not 0.
Problem encode_host_file(uint32_t order, uint32_t since, uint64_t pool, wire::HostFile* out);
Problem encode_host_back(uint32_t order, uint32_t since, uint64_t pool, wire::HostBack* out);
Problem encode_presence(uint32_t index, uint32_t job_class, bool gone, wire::Presence* out);

}  // namespace tandem::daemon
