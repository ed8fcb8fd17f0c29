#include "figures.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "../driver/connection.h"

namespace softgpu {
namespace {

using namespace tandem::softgpu;

// Sends one message and reads an answer of at most `room` bytes. Returns its size, or -1.
ssize_t exchange(const void* message, size_t bytes, void* reply, size_t room) {
  Welcome welcome{};
  const int fd = connect_to_device(kQueryOnly, true, &welcome);
  if (fd < 0) return -1;
  ssize_t got = -1;
  if (send(fd, message, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes)) {
    do {
      got = recv(fd, reply, room, 0);
    } while (got < 0 && errno == EINTR);
  }
  close(fd);
  return got;
}

bool ask(std::string* text) {
  Query query{};
  query.header = {static_cast<uint16_t>(Type::kQuery), sizeof query, 0};
  query.what = 1;
  std::vector<char> packet(kMaxPacketBytes);
  ssize_t got = exchange(&query, sizeof query, packet.data(), packet.size());
  // A device process that was about to exit may have taken the query with it; ask the next one.
  if (got <= 0) got = exchange(&query, sizeof query, packet.data(), packet.size());
  QueryReply reply;
  if (got < static_cast<ssize_t>(sizeof reply)) return false;
  memcpy(&reply, packet.data(), sizeof reply);
  if (reply.text_bytes > static_cast<size_t>(got) - sizeof reply) return false;
  text->assign(packet.data() + sizeof reply, reply.text_bytes);
  return true;
}

// A plain search will do, since the document is flat and our own: a value follows right on its key.
std::string value_of(const std::string& text, const char* key, size_t from = 0) {
  const std::string quoted = '"' + std::string(key) + "\":";
  const size_t found = text.find(quoted, from);
  if (found == std::string::npos) return "";
  size_t begin = found + quoted.size();
  const bool is_text = text[begin] == '"';
  if (is_text) ++begin;
  return text.substr(begin, text.find_first_of(is_text ? "\"" : ",}]", begin) - begin);
}

uint64_t number(const std::string& text, const char* key, size_t from = 0) {
  return strtoull(value_of(text, key, from).c_str(), nullptr, 10);
}

double ratio(const std::string& text, const char* key, size_t from = 0) {
  return strtod(value_of(text, key, from).c_str(), nullptr);
}

DeviceFigures parse_device(const std::string& text) {
  DeviceFigures d{};
  d.name = value_of(text, "name");
  d.uuid = value_of(text, "uuid");
  d.clock_mhz = static_cast<uint32_t>(number(text, "clock_mhz"));
  d.sm_count = static_cast<uint32_t>(number(text, "sm_count"));
  d.memory_clock_mhz = static_cast<uint32_t>(number(text, "memory_clock_mhz"));
  d.memory_bus_bits = static_cast<uint32_t>(number(text, "memory_bus_bits"));
  d.power_limit_w = static_cast<uint32_t>(number(text, "power_limit_w"));
  d.idle_w = static_cast<uint32_t>(number(text, "idle_w"));
  d.pcie_generation = static_cast<uint32_t>(number(text, "pcie_generation"));
  d.mig_slices = static_cast<uint32_t>(number(text, "mig_slices"));
  d.now_ns = number(text, "now_ns");
  d.uptime_ns = number(text, "uptime_ns");
  d.compute_busy_ns = number(text, "compute_busy_ns");
  d.ecc_corrected = number(text, "ecc_corrected");
  d.ecc_uncorrectable = number(text, "ecc_uncorrectable");
  d.has_ecc = number(text, "has_ecc") != 0;
  d.lost = number(text, "lost") != 0;
  d.has_mig_on = number(text, "has_mig_on") != 0;
  d.is_usable = number(text, "is_usable") != 0;
  d.copy_to_ratio = ratio(text, "copy_to_device_ratio");
  d.copy_from_ratio = ratio(text, "copy_from_device_ratio");
  d.copy_bytes_per_s = ratio(text, "copy_bytes_per_s");
  d.total_bytes = number(text, "total_bytes");
  d.used_bytes = number(text, "used_bytes");
  d.gpu_ratio = ratio(text, "gpu_utilization_ratio");
  d.memory_ratio = ratio(text, "memory_utilization_ratio");
  const size_t capability = text.find("\"compute_capability\":[");
  if (capability != std::string::npos) {
    char* end;
    d.major = static_cast<uint32_t>(strtoul(text.c_str() + capability + 22, &end, 10));
    d.minor = static_cast<uint32_t>(strtoul(end + 1, nullptr, 10));
  }
  d.profile = value_of(text, "profile");
  d.gpu_instance = static_cast<uint32_t>(number(text, "gpu_instance"));
  d.mig_profile = static_cast<uint32_t>(number(text, "mig_profile"));
  d.mig_start = static_cast<uint32_t>(number(text, "mig_start"));
  for (size_t at = text.find("{\"pid\":"); at != std::string::npos;
       at = text.find("{\"pid\":", at + 1)) {
    d.processes.push_back({static_cast<uint32_t>(number(text, "pid", at)), d.gpu_instance,
                           number(text, "used_bytes", at), ratio(text, "compute_ratio", at)});
  }
  return d;
}

// Derives the whole device from `text`, which describes its first instance.
DeviceFigures whole_device(const std::string& text, const DeviceFigures& first) {
  DeviceFigures device = first;
  device.name = first.name.substr(0, first.name.find(" MIG "));
  device.uuid = value_of(text, "device_uuid");
  device.sm_count = static_cast<uint32_t>(number(text, "device_sm_count"));
  device.total_bytes = number(text, "device_bytes");
  device.gpu_instance = 0;
  device.used_bytes = device.compute_busy_ns = 0;
  device.gpu_ratio = device.memory_ratio = 0;
  device.processes.clear();
  return device;
}

// Adds an instance to its device: completes it with what only the first instance's text has, and
// adds its figures to the device's totals.
void add_instance(DeviceFigures* device, DeviceFigures instance) {
  const double share = static_cast<double>(instance.sm_count) / device->sm_count;
  instance.lost = device->lost;
  instance.now_ns = device->now_ns;
  instance.has_ecc = device->has_ecc;
  device->used_bytes += instance.used_bytes;
  device->gpu_ratio += instance.gpu_ratio * share;
  device->compute_busy_ns +=
      static_cast<uint64_t>(static_cast<double>(instance.compute_busy_ns) * share);
  device->processes.insert(device->processes.end(), instance.processes.begin(),
                           instance.processes.end());
  device->instances.push_back(std::move(instance));
}

}  // namespace

bool read_figures(std::vector<DeviceFigures>* devices) {
  std::string text;
  if (!ask(&text)) return false;
  devices->clear();
  size_t at = text.find("{\"index\":");
  while (at != std::string::npos) {
    const size_t next = text.find("{\"index\":", at + 1);
    const std::string entry = text.substr(at, next - at);
    DeviceFigures figures = parse_device(entry);
    if (!value_of(entry, "device_sm_count").empty()) {
      devices->push_back(figures.gpu_instance ? whole_device(entry, figures) : figures);
    }
    if (figures.gpu_instance) add_instance(&devices->back(), std::move(figures));
    at = next;
  }
  return true;
}

bool change_mig(const MigChange& change, MigReply* reply) {
  MigChange message = change;
  message.header = {static_cast<uint16_t>(Type::kMigChange), sizeof message, 0};
  const ssize_t got = exchange(&message, sizeof message, reply, sizeof *reply);
  return got == static_cast<ssize_t>(sizeof *reply);
}

}  // namespace softgpu
