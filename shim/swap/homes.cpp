#include "homes.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.h"
#include "mutex.h"
#include "own_array.h"
#include "shm_layout.h"

namespace tandem::shim::swap {
namespace {

struct Pool {
  void* at;
  uint64_t bytes;
  bool pinned;
};

pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
Runs g_runs;
OwnArray<Pool> g_pools;

// A file that could shrink under us would be a SIGBUS in the job.
bool is_as_long_as(int fd, uint64_t bytes) {
  struct stat about {};
  const int seals = fcntl(fd, F_GET_SEALS);
  return bytes != 0 && bytes % shm::kSwapUnit == 0 && seals >= 0 && (seals & F_SEAL_SHRINK) &&
         fstat(fd, &about) == 0 && static_cast<uint64_t>(about.st_size) >= bytes;
}

void* map_pool(int fd, uint64_t bytes) {
  if (!is_as_long_as(fd, bytes)) return nullptr;
  // A page more, that nothing can be in: two pools are pinned apart, so no home may lie across them.
  void* at = mmap(nullptr, bytes + 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    munmap(at, bytes + 4096);
    return nullptr;
  }
  madvise(at, bytes, MADV_DONTFORK);
  return at;
}

}  // namespace

void add_pool(int fd, uint64_t bytes) {
  void* at = map_pool(fd, bytes);
  close(fd);
  if (!at) return;
  const HoldsMutex lock(&g_lock);
  if (g_pools.push({at, bytes, false})) g_runs.add(reinterpret_cast<uint64_t>(at), bytes);
}

void pin_pools() {
  for (size_t i = 0;; ++i) {
    Pool pool{};
    {
      const HoldsMutex lock(&g_lock);
      if (i >= g_pools.size()) return;
      pool = g_pools[i];
      g_pools[i].pinned = true;  // tried once: where it fails it would fail again
    }
    if (!pool.pinned && g_driver.cuMemHostRegister_v2)
      g_driver.cuMemHostRegister_v2(pool.at, pool.bytes, CU_MEMHOSTREGISTER_PORTABLE);
  }
}

uint32_t take_home(uint64_t bytes) {
  const HoldsMutex lock(&g_lock);
  return g_runs.take(bytes);
}

void give_home_back(uint32_t home) {
  const HoldsMutex lock(&g_lock);
  g_runs.give_back(home);
}

uint32_t look_at_home(uint32_t home, Run* out) {
  const HoldsMutex lock(&g_lock);
  return g_runs.look_at(home, out);
}

// The maps are not in the child.
void forget_homes() {
  pthread_mutex_init(&g_lock, nullptr);
  g_runs.clear();
  g_pools.clear();
}

}  // namespace tandem::shim::swap
