// The words through which a thread reaches what belongs to this process alone: how calls are
// handled, and the channel. In every child they are zero, however it was created (MADV_WIPEONFORK,
// "madvise(2)"): the memory behind the channel is not mapped there (MADV_DONTFORK), and fork
// handlers run for fork only.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm_layout.h"

namespace tandem::shim {

struct Channel;
enum class Way : uint8_t;

// A whole page. Where a page is always small, a larger alignment would cost the loader of every
// process system calls.
#if defined(__aarch64__)
inline constexpr size_t kOwnPageBytes = shm::kLargestPage;
#else
inline constexpr size_t kOwnPageBytes = 4096;
#endif
struct alignas(kOwnPageBytes) OwnPage {
  std::atomic<Channel*> channel;  // g_channel
  std::atomic<Way> way;           // g_way
};
extern OwnPage g_own_page;

// Takes effect from this call on. Where the kernel cannot do it (before 4.14), fork handlers have
// to suffice.
void keep_page_from_children();
// Whether this process has made that call, or its parent did before creating it.
[[nodiscard]] bool is_page_kept();

}  // namespace tandem::shim
