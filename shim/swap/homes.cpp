#include "homes.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.h"
#include "mutex.h"
#include "own_array.h"
#include "runs.h"
#include "shm_layout.h"
#include "system_calls.h"

namespace tandem::shim::swap {
namespace {

// A program may close a descriptor that it did not open, and get the same number for a file of its
// own: so each use checks whose it is.
struct File {
  int fd = -1;
  dev_t device = 0;
  ino_t inode = 0;
};
struct Pool {
  void* at;  // addresses, even if the pool is in a file: runs are known by them
  uint64_t bytes;
  uint64_t number;  // 0 = of an earlier connection
  bool tried_to_pin;
  uint64_t pinned_bytes;  // from its beginning on
  File file;
};
constexpr uint64_t kGuardBytes = shm::kLargestPage;

pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER;
Runs g_runs;
OwnArray<Pool> g_pools;
uint64_t g_counted = 0;  // pools on this connection

// If the file could shrink while mapped, the job would get SIGBUS.
bool is_as_long_as(int fd, uint64_t bytes) {
  struct stat about{};
  const int seals = fcntl(fd, F_GET_SEALS);
  return bytes != 0 && bytes % shm::kSwapUnit == 0 && seals >= 0 && (seals & F_SEAL_SHRINK) &&
         file_status(fd, &about) && static_cast<uint64_t>(about.st_size) >= bytes;
}

// Reserves addresses for that many bytes, from a multiple of kPinBytes on, plus a page that stays
// empty: two pools are pinned separately, so no home may span them.
void* reserve(uint64_t bytes) {
  const uint64_t all = bytes + kGuardBytes + kPinBytes;
  void* const got =
      mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uint64_t>(got);
  const uint64_t at = (begin + kPinBytes - 1) / kPinBytes * kPinBytes;
  if (at != begin) munmap(got, at - begin);
  if (const uint64_t left = begin + all - (at + bytes + kGuardBytes))
    munmap(reinterpret_cast<void*>(at + bytes + kGuardBytes), left);
  return reinterpret_cast<void*>(at);
}

void* map_pool(int fd, uint64_t bytes) {
  if (!is_as_long_as(fd, bytes)) return nullptr;
  void* at = reserve(bytes);
  if (!at) return nullptr;
  if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    munmap(at, bytes + kGuardBytes);
    return nullptr;
  }
  madvise(at, bytes, MADV_DONTFORK);
  return at;
}

File file_of(int fd) {
  struct stat about{};
  if (!file_status(fd, &about)) return {};
  return {fd, about.st_dev, about.st_ino};
}

bool is_ours(const File& file) {
  const File now = file.fd < 0 ? File{} : file_of(file.fd);
  return now.fd >= 0 && now.device == file.device && now.inode == file.inode;
}

// Index of the pool that contains the address; every run is in one.
size_t pool_at(uint64_t address) {
  size_t at = 0;
  while (address - reinterpret_cast<uint64_t>(g_pools[at].at) >= g_pools[at].bytes) ++at;
  return at;
}

// Drops pools in files in which nothing lies any more.
void drop_files_without_homes() {
  for (size_t i = 0; i < g_pools.size();) {
    const Pool& pool = g_pools[i];
    if (pool.file.fd < 0 || g_runs.out_of_closed(reinterpret_cast<uint64_t>(pool.at)) != 0) {
      ++i;
      continue;
    }
    if (is_ours(pool.file)) close(pool.file.fd);
    munmap(pool.at, pool.bytes + kGuardBytes);
    g_pools.erase(i);
  }
}

// The pool with that number, if it is in memory.
Pool* pool_in_memory(uint64_t number) {
  for (Pool& pool : g_pools) {
    if (number != 0 && pool.number == number && pool.file.fd < 0) return &pool;
  }
  return nullptr;
}

// Finds the pool by its addresses: the helper may have restarted the numbering meanwhile, and only
// the mover takes pools away.
Pool* pool_that_is(const Pool& known) {
  Pool* found = g_pools.begin();
  while (found->at != known.at) ++found;
  return found;
}

// Returns how many bytes could be pinned.
uint64_t pin(const Pool& pool) {
  const auto at = reinterpret_cast<uint64_t>(pool.at);
  uint64_t pinned = 0;
  while (pinned < pool.bytes) {
    const uint64_t bytes = pinned_at_once(at + pinned, pool.bytes - pinned);
    if (g_driver.cuMemHostRegister_v2(reinterpret_cast<void*>(at + pinned), bytes,
                                      CU_MEMHOSTREGISTER_PORTABLE) != CUDA_SUCCESS) {
      break;
    }
    pinned += bytes;
  }
  return pinned;
}

// False: some of it is still pinned.
bool unpin(const Pool& pool) {
  if (!g_driver.cuMemHostUnregister) return true;
  for (uint64_t from = 0; from < pool.pinned_bytes; from += kPinBytes) {
    const CUresult result = g_driver.cuMemHostUnregister(static_cast<char*>(pool.at) + from);
    // The context that pinned it may be gone, or an earlier try may have unpinned it.
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED) return false;
  }
  return true;
}

}  // namespace

void begin_counting_pools() {
  const HoldsMutex lock(&g_lock);
  for (Pool& pool : g_pools) pool.number = 0;
  g_counted = 0;
}

void add_pool(int fd, uint64_t bytes) {
  void* at = map_pool(fd, bytes);
  close(fd);
  const HoldsMutex lock(&g_lock);
  ++g_counted;
  if (!at) return;
  if (g_pools.push({at, bytes, g_counted, false, 0, {}}))
    g_runs.add(reinterpret_cast<uint64_t>(at), bytes);
}

void pin_pools() {
  for (size_t i = 0;; ++i) {
    Pool pool{};
    {
      const HoldsMutex lock(&g_lock);
      if (i >= g_pools.size()) return;
      pool = g_pools[i];
      g_pools[i].tried_to_pin = true;  // if it fails, it would fail again
    }
    if (pool.tried_to_pin || !g_driver.cuMemHostRegister_v2) continue;
    const uint64_t pinned_bytes = pin(pool);
    const HoldsMutex lock(&g_lock);  // only the mover takes pools away
    g_pools[i].pinned_bytes = pinned_bytes;
  }
}

bool move_pool_to_file(uint64_t number, int fd) {
  struct stat about{};
  Pool moved{};
  {
    const HoldsMutex lock(&g_lock);
    const Pool* pool = pool_in_memory(number);
    if (pool) moved = *pool;
  }
  moved.file = file_of(fd);
  if (!moved.at || !file_status(fd, &about) || static_cast<uint64_t>(about.st_size) < moved.bytes ||
      !unpin(moved)) {
    close(fd);
    return false;
  }
  const HoldsMutex lock(&g_lock);
  Pool* const pool = pool_that_is(moved);
  pool->pinned_bytes = 0;
  const bool closed = g_runs.close(reinterpret_cast<uint64_t>(pool->at), pool->bytes);
  if (!closed) {
    close(fd);
    return false;
  }
  mmap(pool->at, pool->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
       -1, 0);
  pool->file = moved.file;
  drop_files_without_homes();
  return true;
}

bool give_pool_back(uint64_t number) {
  Pool given{};
  {
    const HoldsMutex lock(&g_lock);
    const Pool* pool = pool_in_memory(number);
    // From here on nobody puts anything there.
    if (!pool || !g_runs.remove(reinterpret_cast<uint64_t>(pool->at), pool->bytes)) return false;
    given = *pool;
  }
  const bool unpinned = unpin(given);
  {
    const HoldsMutex lock(&g_lock);
    if (!unpinned) {
      g_runs.add(reinterpret_cast<uint64_t>(given.at), given.bytes);
      return false;
    }
    g_pools.erase(static_cast<size_t>(pool_that_is(given) - g_pools.begin()));
  }
  munmap(given.at, given.bytes + kGuardBytes);  // takes long, but nobody waits for it
  return true;
}

uint32_t take_home(uint64_t bytes) {
  const HoldsMutex lock(&g_lock);
  return g_runs.take(bytes);
}

void give_home_back(uint32_t home) {
  const HoldsMutex lock(&g_lock);
  g_runs.give_back(home);
  drop_files_without_homes();
}

uint32_t look_at_home(uint32_t home, Part* out) {
  const HoldsMutex lock(&g_lock);
  Run run{};
  const uint32_t next = g_runs.look_at(home, &run);
  *out = {run.at, run.bytes, false, -1, 0};
  if (g_runs.closed_bytes() == 0) return next;
  const Pool& pool = g_pools[pool_at(run.at)];
  out->is_in_file = pool.file.fd >= 0;
  out->fd = is_ours(pool.file) ? pool.file.fd : -1;
  out->offset = run.at - reinterpret_cast<uint64_t>(pool.at);
  return next;
}

bool is_any_in_file(uint32_t home) {
  const HoldsMutex lock(&g_lock);
  for (Run run{}; home;) {
    home = g_runs.look_at(home, &run);
    if (g_runs.is_closed(run.at)) return true;
  }
  return false;
}

uint64_t bytes_in_files() {
  const HoldsMutex lock(&g_lock);
  return g_runs.closed_bytes();
}

// The maps do not exist in the child.
void forget_homes() {
  pthread_mutex_init(&g_lock, nullptr);
  for (const Pool& pool : g_pools) {
    if (is_ours(pool.file)) close(pool.file.fd);
  }
  g_counted = 0;
  g_runs.clear();
  g_pools.clear();
}

}  // namespace tandem::shim::swap
