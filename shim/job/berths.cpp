#include "berths.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <new>

#include "system_calls.h"

namespace tandem::shim::berths {

std::atomic<Channel*> g_channels[kBerths];

namespace {

constexpr size_t kCommandAt = 0;
constexpr size_t kPresenceAt = kCommandAt + shm::kLargestPage;
// Last, because some daemons' pages end earlier.
constexpr size_t kStateAt = kPresenceAt + shm::kLargestPage;
constexpr size_t kBytes = kStateAt + shm::kStateBytes;
static_assert(shm::kCommandBytes <= shm::kLargestPage && shm::kPresenceBytes <= shm::kLargestPage);
constexpr int kWrite = PROT_READ | PROT_WRITE;

// Used only by the thread that attaches.
char* g_berths[kBerths];
void* g_peers[shm::kPresenceMax];
uint32_t g_next = 0;

void* anonymous(size_t bytes, int protection) {
  void* const at = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

// `at`: over what is mapped there; null: anywhere.
void* map(int file, size_t bytes, int protection, void* at) {
  struct stat about{};
  // If a file were shorter than its map, the job would get SIGBUS; a sealed file cannot shrink
  // later.
  if (file < 0 || !file_status(file, &about) || static_cast<size_t>(about.st_size) < bytes)
    return nullptr;
  const int seals = fcntl(file, F_GET_SEALS);
  if (seals < 0 || !(seals & F_SEAL_SHRINK)) return nullptr;
  void* const made = mmap(at, bytes, protection, MAP_SHARED | (at ? MAP_FIXED : 0), file, 0);
  if (made == MAP_FAILED) return nullptr;
  madvise(made, bytes, MADV_DONTFORK);  // a child's writes would be taken for ours
  return made;
}

// Reserves the addresses, without memory.
char* reserve() {
  void* const at = anonymous(kBytes, PROT_NONE);
  if (at) madvise(at, kBytes, MADV_DONTFORK);
  return static_cast<char*>(at);
}

// What the driver has registered under these addresses are the pages of then, not those of now.
void make_as_new(Channel* used) {
  const uint64_t context = used->registered_in.load(std::memory_order_relaxed);
  const int device = used->registered_on.load(std::memory_order_relaxed);
  const bool untried = used->registered.load(std::memory_order_acquire) == kNotTried;
  new (used) Channel;
  used->registered_in.store(context, std::memory_order_relaxed);
  used->registered_on.store(device, std::memory_order_relaxed);
  used->registered.store(untried ? kNotTried : kFailed, std::memory_order_release);
}

}  // namespace

bool map_attachment(const int* files, size_t state_bytes, Maps* maps) {
  char*& berth = g_berths[g_next];
  if (!berth) berth = reserve();
  if (!berth) return false;
  void* const command = map(files[0], shm::kCommandBytes, PROT_READ, berth + kCommandAt);
  void* const state = command ? map(files[1], state_bytes, kWrite, berth + kStateAt) : nullptr;
  void* const presence =
      state ? map(files[2], shm::kPresenceBytes, kWrite, berth + kPresenceAt) : nullptr;
  *maps = {static_cast<shm::CommandPage*>(command), static_cast<shm::StatePage*>(state),
           static_cast<shm::PresencePage*>(presence)};
  return presence != nullptr;
}

Channel* make_channel() {
  Channel* made = g_channels[g_next].load(std::memory_order_relaxed);
  if (made) {
    make_as_new(made);
    return made;
  }
  void* const at = anonymous(sizeof(Channel), kWrite);
  if (!at) return nullptr;
  made = new (at) Channel;
  g_channels[g_next].store(made, std::memory_order_release);
  return made;
}

void keep() { g_next = (g_next + 1) % kBerths; }

const shm::PresencePage* map_peer(uint32_t index, int file) {
  void* const page = map(file, shm::kPresenceBytes, PROT_READ, g_peers[index]);
  if (page) g_peers[index] = page;
  return static_cast<const shm::PresencePage*>(page);
}

void start_afresh() {
  for (char*& berth : g_berths) berth = nullptr;
  for (void*& peer : g_peers) peer = nullptr;
  for (std::atomic<Channel*>& channel : g_channels)
    channel.store(nullptr, std::memory_order_relaxed);
  g_next = 0;
}

}  // namespace tandem::shim::berths
