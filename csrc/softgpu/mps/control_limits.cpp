// The commands that set and show limits. An invalid percentage leaves the limit as it was and is
// reported only in the log; a memory limit of 0, or one that is not a number, removes the limit.
#include <cstdio>
#include <cstdlib>

#include "control.h"

namespace tandem::softgpu::mps {
namespace {

constexpr uint64_t kMiB = 1024 * 1024, kGiB = 1024 * kMiB;

std::string show_percentage(double percent) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f\n", percent);
  return text;
}

std::string set_percentage_of(World* world, Limits* limits, const std::string& text) {
  const double percent = std::strtod(text.c_str(), nullptr);
  if (percent > 0 && percent <= 100) {
    limits->percent = percent;
  } else {
    world->log("Invalid percentage, expected between (0.0, 100.0]");
  }
  return show_percentage(limits->percent);
}

// Parses "4G"; any other number is in MiB. Returns kNever for no limit.
uint64_t bytes_of(const std::string& text) {
  char* end = nullptr;
  const uint64_t count = std::strtoull(text.c_str(), &end, 10);
  const uint64_t unit = *end == 'G' ? kGiB : kMiB;
  return count == 0 || count > UINT64_MAX / unit ? kNever : count * unit;
}

uint64_t* limit_of(World* world, Limits* limits, int device) {
  if (device >= 0 && device < static_cast<int>(kMaxDevices)) return &limits->memory.bytes[device];
  world->log("Invalid device ordinal!");
  return nullptr;
}

// Shows the limit in whole GiB if it is at least one GiB, otherwise in MiB.
std::string show_memory(World* world, Limits* limits, int device) {
  const uint64_t* bytes = limit_of(world, limits, device);
  if (!bytes) return "";
  if (*bytes == kNever) {
    world->log("No default pinned memory limit set for the device!");
    return "";
  }
  return *bytes >= kGiB ? std::to_string(*bytes / kGiB) + "G\n"
                        : std::to_string(*bytes / kMiB) + "M\n";
}

std::string set_memory_of(World* world, Limits* limits, int device, const std::string& value) {
  uint64_t* bytes = limit_of(world, limits, device);
  if (bytes) *bytes = bytes_of(value);
  return "";
}

std::string word(const std::vector<std::string>& words, size_t i) {
  return i < words.size() ? words[i] : "";
}

constexpr char kChange[] = "change settings for";

}  // namespace

bool Control::may_change(uid_t uid, std::string* error) const {
  if (uid == owner_ || uid == 0) return true;
  *error = "Insufficient privileges for UID " + std::to_string(uid) +
           ". Control deamon settings can only be modified by the user started it or by the root "
           "user.\n";
  return false;
}

std::string Control::set_default_percentage(const Order& order) {
  std::string error;
  if (!may_change(order.uid, &error)) return error;
  return set_percentage_of(world_, &defaults, word(order.words, 1));
}
std::string Control::get_default_percentage(const Order&) {
  return show_percentage(defaults.percent);
}
std::string Control::set_percentage(const Order& order) {
  std::string error;
  Server* server = find_own_server(order, kChange, &error);
  return server ? set_percentage_of(world_, &server->limits, word(order.words, 2)) : error;
}
std::string Control::get_percentage(const Order& order) {
  std::string error;
  const Server* server = find_server(order.number(1), &error);
  return server ? show_percentage(server->limits.percent) : error;
}

std::string Control::set_default_memory(const Order& order) {
  std::string error;
  if (!may_change(order.uid, &error)) return error;
  return set_memory_of(world_, &defaults, order.number(1), word(order.words, 2));
}
std::string Control::get_default_memory(const Order& order) {
  return show_memory(world_, &defaults, order.number(1));
}
std::string Control::set_memory(const Order& order) {
  std::string error;
  Server* server = find_own_server(order, kChange, &error);
  return server ? set_memory_of(world_, &server->limits, order.number(2), word(order.words, 3))
                : error;
}
std::string Control::get_memory(const Order& order) {
  std::string error;
  Server* server = find_server(order.number(1), &error);
  return server ? show_memory(world_, &server->limits, order.number(2)) : error;
}

std::string Control::set_default_priority(const Order& order) {
  std::string error;
  if (!may_change(order.uid, &error)) return error;
  const int priority = order.number(1);
  if (priority != 0 && priority != 1) return "Invalid priority value - must be 0 or 1!\n";
  defaults.priority = static_cast<uint32_t>(priority);
  return "";
}
std::string Control::get_default_priority(const Order&) {
  return std::to_string(defaults.priority) + "\n";
}

}  // namespace tandem::softgpu::mps
