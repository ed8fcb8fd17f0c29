// The commands that set and show limits.
#include <cstdio>
#include <cstdlib>

#include "control.h"

namespace tandem::softgpu::mps {
namespace {

std::string show_percentage(double percent) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f\n", percent);
  return text;
}

std::string set_percentage_of(Limits* limits, const std::string& text) {
  const double percent = parse_mps_percentage(text.c_str());
  if (percent == 0) return "'" + text + "' is no percentage above 0 and up to 100\n";
  limits->percent = percent;
  return show_percentage(percent);
}

bool device_of(const std::string& text, uint32_t* device, std::string* error) {
  char* end = nullptr;
  const unsigned long number = std::strtoul(text.c_str(), &end, 10);
  if (end != text.c_str() && *end == '\0' && number < kMaxDevices) {
    *device = static_cast<uint32_t>(number);
    return true;
  }
  *error = "'" + text + "' is no device ordinal from 0 to " + std::to_string(kMaxDevices - 1) + "\n";
  return false;
}

std::string show_memory(const Limits& limits, const std::string& device_text) {
  uint32_t device = 0;
  std::string error;
  if (!device_of(device_text, &device, &error)) return error;
  const uint64_t bytes = limits.memory.bytes[device];
  if (bytes == kNever) return "none\n";
  constexpr uint64_t kMiB = 1024 * 1024;
  if (bytes % (1024 * kMiB) == 0) return std::to_string(bytes / (1024 * kMiB)) + "G\n";
  if (bytes % kMiB == 0) return std::to_string(bytes / kMiB) + "M\n";
  return std::to_string(bytes) + "\n";
}

std::string set_memory_of(Limits* limits, const std::string& device_text,
                          const std::string& value) {
  uint32_t device = 0;
  std::string error;
  if (!device_of(device_text, &device, &error)) return error;
  const uint64_t bytes = parse_mps_bytes(value);
  if (bytes == 0) return "'" + value + "' is no amount such as 4G or 512M\n";
  limits->memory.bytes[device] = bytes;
  return show_memory(*limits, device_text);
}

}  // namespace

std::string Control::set_default_percentage(const Words& words) {
  return set_percentage_of(&defaults, words[1]);
}
std::string Control::get_default_percentage(const Words&) {
  return show_percentage(defaults.percent);
}
std::string Control::set_percentage(const Words& words) {
  std::string error;
  Server* server = find_server(words[1], &error);
  return server ? set_percentage_of(&server->limits, words[2]) : error;
}
std::string Control::get_percentage(const Words& words) {
  std::string error;
  const Server* server = find_server(words[1], &error);
  return server ? show_percentage(server->limits.percent) : error;
}

std::string Control::set_default_memory(const Words& words) {
  return set_memory_of(&defaults, words[1], words[2]);
}
std::string Control::get_default_memory(const Words& words) {
  return show_memory(defaults, words[1]);
}
std::string Control::set_memory(const Words& words) {
  std::string error;
  Server* server = find_server(words[1], &error);
  return server ? set_memory_of(&server->limits, words[2], words[3]) : error;
}
std::string Control::get_memory(const Words& words) {
  std::string error;
  const Server* server = find_server(words[1], &error);
  return server ? show_memory(server->limits, words[2]) : error;
}

std::string Control::set_default_priority(const Words& words) {
  if (words[1] != "0" && words[1] != "1") {
    return "'" + words[1] + "' is no priority; 0 is normal, 1 below normal\n";
  }
  defaults.priority = static_cast<uint32_t>(words[1][0] - '0');
  return words[1] + "\n";
}
std::string Control::get_default_priority(const Words&) {
  return std::to_string(defaults.priority) + "\n";
}

}  // namespace tandem::softgpu::mps
