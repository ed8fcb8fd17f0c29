#include "own_page.h"

#include <sys/mman.h>

#include <cerrno>

namespace tandem::shim {

OwnPage g_own_page;

namespace {
std::atomic<bool> g_is_kept{false};
}

void keep_page_from_children() {
  const int saved = errno;  // the job's
  g_is_kept.store(true);    // before a child could find the page empty
  madvise(&g_own_page, sizeof(g_own_page), MADV_WIPEONFORK);
  errno = saved;
}

bool is_page_kept() { return g_is_kept.load(); }

}  // namespace tandem::shim
