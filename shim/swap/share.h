// Memory that can be moved, shared between processes: what the program carries from one to the
// other, and what the processes ask and answer each other on datagram sockets.
//
//   owner                                  importer
//     | handle (64 bytes) .............> |   in whatever way the program chooses
//     | <--------------------- Question |   to the socket that the handle names
//     | Answer + descriptors ---------> |   for some pieces; the importer asks until it has all
//
// The owner asks the kernel who is asking (SCM_CREDENTIALS) and answers its own user only; the
// importer trusts its own user only. No state is kept between two questions.
#pragma once

#include <cuda.h>

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "regions.h"

namespace tandem::shim::swap {

inline constexpr uint64_t kShareMagic = 0x314350494d444e54;  // "TNDMIPC1"; the digit is the version
inline constexpr uint32_t kPiecesAnAnswer = 16;

// The content of a CUipcMemHandle. Always the same for the same allocation.
struct ShareHandle {
  uint64_t magic;
  uint64_t socket;  // of the owner
  Token token;
  uint64_t offset;  // of the allocation within what is mapped
  uint64_t bytes;
  uint64_t number;  // of the packed allocation at `offset`; 0 = the allocation is the whole region
  uint64_t reserved;
};
static_assert(sizeof(ShareHandle) == sizeof(CUipcMemHandle));

struct Question {
  uint64_t magic;
  Token token;
  uint64_t offset;
  uint64_t number;
  uint64_t first;  // piece
};

struct Answer {
  uint64_t magic;
  uint64_t reserved;  // addresses it takes; 0 = there is no such memory, or not for this user
  uint64_t first;
  uint64_t count;  // of the descriptors that come with it
  struct Part {
    uint64_t at, bytes;
  } part[kPiecesAnAnswer];
};

// A name that only the kernel keeps (man 7 unix, "abstract"): no file is left behind.
inline socklen_t share_address(uint64_t socket, sockaddr_un* out) {
  *out = {};
  out->sun_family = AF_UNIX;
  const int length =
      std::snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "tandem-memory-%016llx",
                    static_cast<unsigned long long>(socket));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

// The user at the other end according to the kernel; -1 = it did not say.
inline int64_t user_of(msghdr* message) {
  for (cmsghdr* part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_CREDENTIALS) continue;
    ucred who{};
    __builtin_memcpy(&who, CMSG_DATA(part), sizeof(who));
    return who.uid;
  }
  return -1;
}

}  // namespace tandem::shim::swap
