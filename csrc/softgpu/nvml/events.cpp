// Event sets: report XIDs and ECC errors as they happen.
//
// Each set has its own connection to the device process, which sends it every event; events that
// nobody registered for are dropped here.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <set>

#include "../driver/connection.h"
#include "nvml.h"

using namespace nvml;
using softgpu::DeviceFigures;

namespace {

namespace proto = tandem::softgpu;

struct EventData {
  Handle device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
constexpr unsigned long long kSupported = 1 | 2 | 8;  // ECC corrected, uncorrectable, XID

struct EventSet {
  int fd = -1;
  bool device_process_gone = false;
  std::map<uint32_t, unsigned long long> wanted;  // event types, by device
  std::deque<EventData> arrived;
};

std::mutex g_mutex;  // protects live_sets(); as in NVML, callers must synchronise use of one set
std::set<const void*>& live_sets() {
  static auto* const sets = new std::set<const void*>;
  return *sets;
}

EventSet* find_set(void* handle) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  return live_sets().count(handle) ? static_cast<EventSet*>(handle) : nullptr;
}

bool subscribe(EventSet* set) {
  proto::Welcome welcome{};
  set->fd = softgpu::connect_to_device(proto::kQueryOnly, true, &welcome);
  if (set->fd < 0) return false;
  proto::Query wish{};
  wish.header = {static_cast<uint16_t>(proto::Type::kQuery), sizeof wish, 0};
  wish.what = 2;
  char reply[256];
  // Once the query is answered, every event from then on is received.
  return send(set->fd, &wish, sizeof wish, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof wish) &&
         recv(set->fd, reply, sizeof reply, 0) > 0;
}

void take_packet(EventSet* set) {
  alignas(8) char packet[4096];
  const ssize_t got = recv(set->fd, packet, sizeof packet, 0);
  if (got < 0 && errno == EINTR) return;
  if (got <= 0) {
    set->device_process_gone = true;
    return;
  }
  const auto bytes = static_cast<size_t>(got);
  for (size_t at = 0; at + sizeof(proto::Header) <= bytes;) {
    proto::Header header;
    memcpy(&header, packet + at, sizeof header);
    if (header.size < sizeof header || header.size > bytes - at) return;
    proto::DeviceEvent event;
    if (header.type == static_cast<uint16_t>(proto::Type::kDeviceEvent) &&
        header.size == sizeof event) {
      memcpy(&event, packet + at, sizeof event);
      const auto wanted = set->wanted.find(event.device);
      if (wanted != set->wanted.end() && (wanted->second & event.type) != 0) {
        set->arrived.push_back(
            {handle_of(event.device), event.type, event.data, kNoInstance, kNoInstance});
      }
    }
    at += header.size;
  }
}

int wait_for_event(EventSet* set, unsigned timeout_ms) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (set->arrived.empty()) {
    if (set->device_process_gone) return kGpuIsLost;  // as documented for an inaccessible GPU
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd ready{set->fd, POLLIN, 0};
    const int rc = poll(&ready, 1, left > 0 ? static_cast<int>(left) : 0);
    if (rc == 0) return kTimeout;
    if (rc > 0) take_packet(set);
  }
  return kSuccess;
}

}  // namespace

NVML_API nvmlDeviceGetSupportedEventTypes(Handle handle, unsigned long long* types) {
  return put(handle, types, [](const DeviceFigures& device) {
    return device.has_ecc ? kSupported : kSupported & ~3ULL;
  });
}

NVML_API nvmlEventSetCreate(void** out) {
  if (!initialised()) return kUninitialized;
  if (!out) return kInvalidArgument;
  auto* set = new EventSet;
  if (!subscribe(set)) {
    if (set->fd >= 0) close(set->fd);
    delete set;
    return kUnknown;
  }
  const std::lock_guard<std::mutex> lock(g_mutex);
  live_sets().insert(set);
  *out = set;
  return kSuccess;
}

NVML_API nvmlDeviceRegisterEvents(Handle handle, unsigned long long types, void* set_handle) {
  DeviceFigures device;
  if (const int bad = figures_of(handle, &device)) return bad;
  EventSet* set = find_set(set_handle);
  if (!set) return kInvalidArgument;
  if ((types & ~(device.has_ecc ? kSupported : kSupported & ~3ULL)) != 0) return kNotSupported;
  set->wanted[static_cast<uint32_t>(index_of(handle))] |= types;
  return kSuccess;
}

NVML_API nvmlEventSetWait_v2(void* set_handle, EventData* out, unsigned timeout_ms) {
  if (!initialised()) return kUninitialized;
  EventSet* set = find_set(set_handle);
  if (!set || !out) return kInvalidArgument;
  if (const int bad = wait_for_event(set, timeout_ms)) return bad;
  *out = set->arrived.front();
  set->arrived.pop_front();
  return kSuccess;
}
NVML_API nvmlEventSetWait(void* set, EventData* out, unsigned timeout_ms) {
  return nvmlEventSetWait_v2(set, out, timeout_ms);
}

NVML_API nvmlEventSetFree(void* handle) {
  if (!initialised()) return kUninitialized;
  EventSet* set = find_set(handle);
  if (!set) return kInvalidArgument;
  {
    const std::lock_guard<std::mutex> lock(g_mutex);
    live_sets().erase(handle);
  }
  close(set->fd);
  delete set;
  return kSuccess;
}
