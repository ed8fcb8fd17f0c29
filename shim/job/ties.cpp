#include "ties.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "driver.h"
#include "helper.h"
#include "wire.h"

namespace tandem::shim::ties {
namespace {

constexpr uint32_t kMaxKeys = 256;  // a process that shares more is tied by the first ones
constexpr uint32_t kMaxDevices = 64;

// Append only. A place is claimed by incrementing the count, then filled; 0 = not filled yet.
std::atomic<uint64_t> g_keys[kMaxKeys];
std::atomic<uint32_t> g_key_count{0};
std::atomic<uint64_t> g_devices{0};  // one bit per ordinal
std::atomic<uint64_t> g_first{0};    // likewise; written before the helper starts

// FNV-1a: need not be secret, only the same everywhere.
uint64_t hash_of(const char* kind, const void* bytes, size_t size) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&hash](unsigned char byte) { hash = (hash ^ byte) * 0x100000001b3u; };
  for (const char* at = kind; *at; ++at) add(static_cast<unsigned char>(*at));
  for (size_t i = 0; i < size; ++i) add(static_cast<const unsigned char*>(bytes)[i]);
  return hash ? hash : 1;
}

void add_key(uint64_t key) {
  const uint32_t count = g_key_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count && i < kMaxKeys; ++i) {
    if (g_keys[i].load(std::memory_order_relaxed) == key) return;
  }
  if (count >= kMaxKeys) return;
  const uint32_t place = g_key_count.fetch_add(1, std::memory_order_acq_rel);
  if (place < kMaxKeys) g_keys[place].store(key, std::memory_order_release);  // tell: acquire
  wake_helper();
}

uint64_t bit_of(CUdevice device) {
  const bool fits = device >= 0 && static_cast<uint32_t>(device) < kMaxDevices;
  return fits ? uint64_t{1} << device : 0;
}

void share_exports_of(pid_t pid) { add_key(hash_of("descriptors of", &pid, sizeof(pid))); }

template <class T>
bool send_message(int socket, wire::Type type, T message) {
  message.header = {wire::kMagic, wire::kProtocolVersion, static_cast<uint16_t>(type),
                    sizeof(message), 0};
  return send(socket, &message, sizeof(message), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof(message));
}

bool tell_keys(int socket, uint32_t* told) {
  for (; *told < kMaxKeys && *told < g_key_count.load(std::memory_order_acquire); ++*told) {
    wire::Shared shared{};
    shared.key = g_keys[*told].load(std::memory_order_acquire);
    if (shared.key == 0) return true;  // not filled yet
    if (!send_message(socket, wire::Type::kShared, shared)) return false;
  }
  return true;
}

bool tell_devices(int socket, uint64_t* told) {
  uint64_t left = g_devices.load(std::memory_order_relaxed) &
                  ~(*told | g_first.load(std::memory_order_relaxed));
  for (; left; left &= left - 1) {
    const int device = __builtin_ctzll(left);
    CUuuid uuid{};
    wire::Uses uses{};
    if (g_driver.cuDeviceGetUuid_v2 && g_driver.cuDeviceGetUuid_v2(&uuid, device) == CUDA_SUCCESS) {
      std::memcpy(uses.device_uuid, uuid.bytes, sizeof(uses.device_uuid));
      if (!send_message(socket, wire::Type::kUses, uses)) return false;
    }
    *told |= uint64_t{1} << device;
  }
  return true;
}

}  // namespace

void share_handle(const void* handle, size_t bytes) { add_key(hash_of("handle", handle, bytes)); }

void share_exported(int fd) {
  const int saved = errno;
  if (fcntl(fd, F_SETOWN, getpid()) == 0) share_exports_of(getpid());
  errno = saved;
}

void share_imported(int fd) {
  const int saved = errno;
  const pid_t exporter = fcntl(fd, F_GETOWN);
  if (exporter > 0) share_exports_of(exporter);
  errno = saved;
}

void set_first_device(CUdevice device) { g_first.store(bit_of(device), std::memory_order_relaxed); }

void use_device(CUdevice device) {
  const uint64_t bit = bit_of(device);
  if ((g_devices.load(std::memory_order_relaxed) & bit) == bit) return;
  g_devices.fetch_or(bit, std::memory_order_relaxed);
  wake_helper();
}

bool tell(int socket, uint64_t features, Told* told) {
  const int saved = errno;
  bool done = !(features & wire::kFeatureShared) || tell_keys(socket, &told->keys);
  if (done && (features & wire::kFeatureUses)) done = tell_devices(socket, &told->devices);
  errno = saved;
  return done;
}

void start_afresh() {
  for (auto& key : g_keys) key.store(0, std::memory_order_relaxed);
  g_key_count.store(0, std::memory_order_relaxed);
  g_devices.store(0, std::memory_order_relaxed);
}

}  // namespace tandem::shim::ties
