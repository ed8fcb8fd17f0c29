#include "visible_devices.h"

#include <strings.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace softgpu {
namespace {

using tandem::softgpu::DeviceInfo;
using Devices = std::vector<DeviceInfo>;

std::string uuid_text(const char* kind, const uint8_t (&uuid)[16]) {
  std::string text = kind;
  for (int i = 0; i < 16; ++i) {
    char digits[4];
    snprintf(digits, sizeof digits, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
             uuid[i]);
    text += digits;
  }
  return text;
}

std::string_view without_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool begins(const std::string& text, std::string_view beginning) {
  return beginning.size() <= text.size() &&
         strncasecmp(text.c_str(), beginning.data(), beginning.size()) == 0;
}

// The nth device's first entry: instances of one device are adjacent.
const DeviceInfo* nth_of(const Devices& devices, uint32_t ordinal) {
  for (size_t i = 0; i < devices.size(); ++i) {
    if (i > 0 && devices[i].index == devices[i - 1].index) continue;
    if (ordinal-- == 0) return &devices[i];
  }
  return nullptr;
}

const DeviceInfo* by_index(const Devices& devices, std::string_view entry) {
  uint32_t ordinal = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), ordinal);
  const bool whole = error == std::errc() && end == entry.data() + entry.size();
  return whole ? nth_of(devices, ordinal) : nullptr;
}

// A GPU- entry for a device with MIG means its first instance.
const DeviceInfo* by_uuid(const Devices& devices, std::string_view entry) {
  if (entry.size() <= 4) return nullptr;
  const DeviceInfo* found = nullptr;
  for (const DeviceInfo& device : devices) {
    const bool same_device = found && found->index == device.index;
    const bool gpu = begins(uuid_text("GPU-", device.device_uuid), entry);
    const bool mig = device.gpu_instance && begins(uuid_text("MIG-", device.uuid), entry);
    if (!mig && (!gpu || same_device)) continue;
    if (found) return nullptr;  // ambiguous
    found = &device;
  }
  return found;
}

const DeviceInfo* by_path(const Devices& devices, std::string_view entry) {
  for (const DeviceInfo& device : devices) {
    if (!device.gpu_instance) continue;
    const std::string path = uuid_text("MIG-GPU-", device.device_uuid) + "/" +
                             std::to_string(device.gpu_instance) + "/0";
    if (path.size() == entry.size() && begins(path, entry)) return &device;
  }
  return nullptr;
}

const DeviceInfo* find(const Devices& devices, std::string_view entry) {
  if (const DeviceInfo* device = by_index(devices, entry)) return device;
  if (const DeviceInfo* device = by_path(devices, entry)) return device;
  return by_uuid(devices, entry);
}

Devices listed(const Devices& devices, std::string_view list) {
  Devices shown;
  for (;;) {
    const size_t comma = list.find(',');
    const DeviceInfo* device = find(devices, without_blanks(list.substr(0, comma)));
    const auto same = [&](const DeviceInfo& other) { return other.gpu == device->gpu; };
    if (!device || std::any_of(shown.begin(), shown.end(), same)) return shown;
    shown.push_back(*device);
    if (comma == std::string_view::npos) return shown;
    list.remove_prefix(comma + 1);
  }
}

Devices all_of(const tandem::softgpu::Welcome& welcome) {
  return {welcome.device, welcome.device + welcome.device_count};
}

void put(const Devices& devices, tandem::softgpu::Welcome* welcome) {
  std::copy(devices.begin(), devices.end(), welcome->device);
  welcome->device_count = static_cast<uint32_t>(devices.size());
}

}  // namespace

std::string name_of(const DeviceInfo& device) {
  return uuid_text(device.gpu_instance ? "MIG-" : "GPU-", device.uuid);
}

void keep_devices(const std::string& names, tandem::softgpu::Welcome* welcome) {
  put(listed(all_of(*welcome), names), welcome);
}

void show_visible_devices(const char* list, tandem::softgpu::Welcome* welcome) {
  const Devices all = all_of(*welcome);
  Devices shown = list ? listed(all, list) : all;
  const auto instance = std::find_if(shown.begin(), shown.end(),
                                     [](const DeviceInfo& device) { return device.gpu_instance; });
  if (instance != shown.end()) shown = {*instance};
  put(shown, welcome);
}

}  // namespace softgpu
