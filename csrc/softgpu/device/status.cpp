// What the device reports about itself as JSON, for `tandem softgpu status` and for NVML.
#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>

#include "engine.h"

namespace tandem::softgpu {
namespace {

// Leaves room in the packet for the end of the document.
constexpr size_t kMaxListBytes = kMaxPacketBytes - 8 * 1024;

[[gnu::format(printf, 2, 3)]] void append(std::string* out, const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  *out += text;
}

std::string uuid_text(const char* kind, const uint8_t (&uuid)[16]) {
  std::string text = kind;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    append(&text, "%02x", uuid[i]);
  }
  return text;
}

const char* role_name(Role role) {
  switch (role) {
    case Role::kWorker: return "worker";
    case Role::kObserver: return "observer";
    case Role::kQuery: return "query";
    case Role::kMpsServer: return "mps_server";
    case Role::kUnknown: break;
  }
  return "unknown";
}

void append_device(std::string* out, uint32_t index, const Gpu& gpu, uint64_t now_ns) {
  const DeviceInfo& device = gpu.device();
  append(out,
         "{\"index\":%u,\"name\":\"%s\",\"uuid\":\"%s\",\"sm_count\":%u,\"clock_mhz\":%u,"
         "\"compute_capability\":[%u,%u],\"total_bytes\":%" PRIu64 ",\"used_bytes\":%" PRIu64
         ",\"compute_busy_ns\":%" PRIu64
         ",\"gpu_utilization_ratio\":%.4f,"
         "\"memory_utilization_ratio\":%.4f",
         index, device.name, uuid_text(device.gpu_instance ? "MIG-" : "GPU-", device.uuid).c_str(),
         device.sm_count, device.clock_mhz, device.compute_major, device.compute_minor,
         gpu.ledger().total_bytes(), gpu.ledger().used_bytes(), gpu.compute_busy().total_ns(now_ns),
         gpu.compute_busy().ratio(now_ns), gpu.memory_busy().ratio(now_ns));
  append(out, ",\"flops_per_s\":%.0f", device.flops_per_s);
}

}  // namespace

std::string Engine::status_json() const {
  std::string out = "{";
  append(&out,
         "\"protocol\":%u,\"timeline\":\"%s\",\"clock\":\"%s\",\"mode\":\"%s\",\"profile\":\"%s\","
         "\"now_ns\":%" PRIu64 ",\"uptime_ns\":%" PRIu64 ",\"ops_done\":%" PRIu64
         ",\"client_count\":%zu,\"devices\":[",
         kProtocol, timeline_state_, clock_ == ClockKind::kReal ? "real" : "virtual",
         mode_ == Mode::kTime ? "time" : "mps", profile_->name, now_ns_,
         real_now_ns_ - started_real_ns_, ops_done_, clients_.size());
  for (uint32_t i = 0; i < gpus_.size(); ++i) {
    if (i > 0) out += ',';
    append_device(&out, i, gpus_[i], now_ns_);
    out += gpus_[i].health().lost ? ",\"lost\":true}" : ",\"lost\":false}";
  }
  out += "],\"clients\":[";
  bool truncated = false;
  bool first = true;
  for (const auto& [connection, client] : clients_) {
    if (client->role == Role::kUnknown) continue;
    truncated = out.size() > kMaxListBytes;
    if (truncated) break;
    uint64_t memory_bytes = 0;
    for (const Gpu& gpu : gpus_) memory_bytes += gpu.ledger().used_bytes(connection);
    append(&out, "%s{\"id\":%u,\"pid\":%d,\"role\":\"%s\",\"name\":", first ? "" : ",", client->id,
           client->pid, role_name(client->role));
    out += json_string(client->name);
    append(&out,
           ",\"memory_bytes\":%" PRIu64
           ",\"contexts\":%zu,\"streams\":%zu,\"ops_queued\":%zu,"
           "\"ops_done\":%" PRIu64 ",\"busy\":%s}",
           memory_bytes, client->contexts.size(), client->streams.size(), client->ops.size(),
           client->ops_done, client->busy ? "true" : "false");
    first = false;
  }
  append(&out, "],\"truncated\":%s}", truncated ? "true" : "false");
  return out;
}

// Fields that only NVML asks for.
static void append_health(std::string* out, const Profile& profile, const Gpu& gpu,
                          const Health& health, uint64_t now_ns, uint64_t uptime_ns) {
  append(out,
         ",\"now_ns\":%" PRIu64 ",\"uptime_ns\":%" PRIu64
         ",\"memory_clock_mhz\":%u,\"memory_bus_bits\":%u,\"power_limit_w\":%u,"
         "\"idle_w\":%u,\"pcie_generation\":%u,\"has_ecc\":%d,\"mig_slices\":%u,\"lost\":%d,"
         "\"ecc_corrected\":%" PRIu64 ",\"ecc_uncorrectable\":%" PRIu64
         ",\"copy_to_device_ratio\":%.4f,\"copy_from_device_ratio\":%.4f,"
         "\"copy_bytes_per_s\":%.0f",
         now_ns, uptime_ns, profile.memory_clock_mhz, profile.memory_bus_bits,
         profile.power_limit_w, profile.idle_w, profile.pcie_generation, profile.has_ecc ? 1 : 0,
         profile.mig_slices, health.lost ? 1 : 0, health.ecc_corrected, health.ecc_uncorrectable,
         gpu.copy_busy(0).ratio(now_ns), gpu.copy_busy(1).ratio(now_ns),
         gpu.device().copy_bytes_per_s);
}

static void append_processes(std::string* out,
                             const std::map<uint32_t, std::unique_ptr<Client>>& clients,
                             const Gpu& gpu, uint64_t now_ns) {
  struct Share {
    uint64_t used_bytes = 0;
    double compute_ratio = 0;
  };
  std::map<int32_t, Share> share_of_pid;
  for (const auto& [connection, client] : clients) {
    const uint64_t used_bytes = gpu.ledger().used_bytes(connection);
    if (used_bytes == 0) continue;
    Share& share = share_of_pid[client->pid];
    share.used_bytes += used_bytes;
    const BusyWindow* busy = gpu.compute_busy_of(connection);
    if (busy) share.compute_ratio = std::max(share.compute_ratio, busy->ratio(now_ns));
  }
  *out += ",\"processes\":[";
  bool first = true;
  for (const auto& [pid, share] : share_of_pid) {
    if (out->size() > kMaxListBytes) break;
    append(out, "%s{\"pid\":%d,\"used_bytes\":%" PRIu64 ",\"compute_ratio\":%.4f}",
           first ? "" : ",", pid, share.used_bytes, share.compute_ratio);
    first = false;
  }
  *out += "]}";
}

// Each process is listed on a device once, with the memory of all its connections there. With MIG
// on, the list has the instances; what belongs to the whole device is reported once, with the first
// of them.
std::string Engine::nvml_json() const {
  const uint64_t uptime_ns =
      clock_ == ClockKind::kVirtual ? now_ns_ : real_now_ns_ - started_real_ns_;
  std::string out = "{\"devices\":[";
  for (uint32_t i = 0; i < gpus_.size(); ++i) {
    const DeviceInfo& device = gpus_[i].device();
    if (i > 0) out += ',';
    append_device(&out, i, gpus_[i], now_ns_);
    append(&out, ",\"profile\":\"%s\",\"device_index\":%u,\"has_mig_on\":%u,\"is_usable\":%u",
           profile_->name, device.index, device.has_mig_on, device.is_usable);
    if (device.gpu_instance) {
      append(&out,
             ",\"gpu_instance\":%u,\"mig_profile\":%u,\"mig_start\":%u,"
             "\"device_uuid\":\"%s\"",
             device.gpu_instance, device.mig_profile_id, device.mig_start,
             uuid_text("GPU-", device.device_uuid).c_str());
    }
    if (i == 0 || gpus_[i - 1].device().index != device.index) {
      append(&out, ",\"device_sm_count\":%u,\"device_bytes\":%" PRIu64, profile_->sm_count,
             profile_->memory_bytes);
      Health health;
      for (const Gpu& part : gpus_) {
        if (part.device().index != device.index) continue;
        health.ecc_corrected += part.health().ecc_corrected;
        health.ecc_uncorrectable += part.health().ecc_uncorrectable;
        health.lost = part.health().lost;
      }
      append_health(&out, *profile_, gpus_[i], health, now_ns_, uptime_ns);
    }
    append_processes(&out, clients_, gpus_[i], now_ns_);
  }
  return out + "]}";
}

}  // namespace tandem::softgpu
