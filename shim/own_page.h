// The words by which a thread comes to what only this process has: how calls are gone about, and the channel.
// In every child they are zero, however it was made (MADV_WIPEONFORK, "madvise(2)"): behind the channel there
// is nothing there (MADV_DONTFORK), and fork handlers run for fork alone.
#pragma once

#include <atomic>
#include <cstdint>

#include "shm_layout.h"

namespace tandem::shim {

struct Channel;
enum class Way : uint8_t;

// A whole page. Where that is always a small one a larger alignment costs the loader of every process
// system calls.
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

// From now on. Where the kernel cannot (before 4.14), fork handlers have to do.
void keep_page_from_children();
// This process has done that, or, before it was made, its parent.
[[nodiscard]] bool is_page_kept();

}  // namespace tandem::shim
