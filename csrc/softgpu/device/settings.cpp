#include "settings.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "nearest.h"

namespace tandem::softgpu {
namespace {

std::string wrong(std::string_view name, std::string_view value, std::string_view allowed) {
  return std::string(name) + " is '" + std::string(value) + "', must be " + std::string(allowed);
}

// Like `wrong`, but suggests one of `words`.
std::string no_word(std::string_view name, std::string_view value, std::string_view allowed,
                    const std::vector<std::string_view>& words) {
  return wrong(name, value, allowed) + did_you_mean(value, words);
}

template <typename Number>
std::string number(std::string_view name, std::string_view value, Number lowest, Number highest,
                   Number* out) {
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), *out);
  if (error == std::errc() && end == value.data() + value.size() && *out >= lowest &&
      *out <= highest) {
    return {};
  }
  return wrong(name, value,
               "a number from " + std::to_string(lowest) + " to " + std::to_string(highest));
}

using Reader = std::string (*)(std::string_view name, std::string_view value, Settings* settings);

std::string read_dir(std::string_view, std::string_view value, Settings* s) {
  s->dir = value;
  return {};
}
std::string read_timeline(std::string_view, std::string_view value, Settings* s) {
  s->timeline_path = value;
  return {};
}
std::string read_clock(std::string_view name, std::string_view value, Settings* s) {
  if (value != "real" && value != "virtual") {
    return no_word(name, value, "real or virtual", {"real", "virtual"});
  }
  s->clock = value == "real" ? ClockKind::kReal : ClockKind::kVirtual;
  return {};
}
std::string read_mode(std::string_view name, std::string_view value, Settings* s) {
  if (value != "time" && value != "mps") {
    return no_word(name, value, "time or mps", {"time", "mps"});
  }
  s->arbitration.mode = value == "time" ? Mode::kTime : Mode::kMps;
  return {};
}
std::string read_profile(std::string_view name, std::string_view value, Settings* s) {
  s->profile = find_profile(value);
  if (s->profile) return {};
  return no_word(name, value, "one of " + profile_names(), profile_words());
}
std::string read_devices(std::string_view name, std::string_view value, Settings* s) {
  return number<uint32_t>(name, value, 1, kMaxDevices, &s->device_count);
}
// Stored as text: it can be parsed only once profile and device count are known.
std::string read_mig(std::string_view name, std::string_view value, Settings* s) {
  s->mig_name = name;
  s->mig_text = value;
  return {};
}
std::string read_slice(std::string_view name, std::string_view value, Settings* s) {
  return number<uint64_t>(name, value, 1000, 60'000'000'000, &s->arbitration.slice_ns);
}
std::string read_switch(std::string_view name, std::string_view value, Settings* s) {
  return number<uint64_t>(name, value, 0, 60'000'000'000, &s->arbitration.switch_ns);
}
std::string read_faults(std::string_view name, std::string_view value, Settings* s) {
  s->faults = Faults();
  s->faults_text = value;
  const std::string error = s->faults.parse(value);
  return error.empty() ? error : std::string(name) + ": " + error;
}
std::string read_clients(std::string_view name, std::string_view value, Settings* s) {
  return number<uint32_t>(name, value, 0, 10'000, &s->start_clients);
}
std::string read_linger(std::string_view name, std::string_view value, Settings* s) {
  return number<uint64_t>(name, value, 0, 3'600'000, &s->linger_ms);
}
std::string read_users(std::string_view name, std::string_view value, Settings* s) {
  if (value != "own" && value != "all") return no_word(name, value, "own or all", {"own", "all"});
  s->serves_all = value == "all";
  return {};
}
std::string read_ready_fd(std::string_view name, std::string_view value, Settings* s) {
  return number<int>(name, value, 0, 1 << 20, &s->ready_fd);
}

struct Setting {
  const char* flag;         // nullptr: environment only
  const char* environment;  // nullptr: flag only
  Reader read;
};
constexpr Setting kSettings[] = {
    {"--dir", "TANDEM_SOFTGPU_DIR", read_dir},
    {"--timeline", "TANDEM_SOFTGPU_TIMELINE", read_timeline},
    {"--clock", "TANDEM_SOFTGPU_CLOCK", read_clock},
    {"--mode", "TANDEM_SOFTGPU_MODE", read_mode},
    {"--profile", "TANDEM_SOFTGPU_PROFILE", read_profile},
    {"--devices", "TANDEM_SOFTGPU_DEVICES", read_devices},
    {"--mig", "TANDEM_SOFTGPU_MIG", read_mig},
    {"--slice-ns", "TANDEM_SOFTGPU_SLICE_NS", read_slice},
    {"--switch-ns", "TANDEM_SOFTGPU_SWITCH_NS", read_switch},
    {"--faults", "TANDEM_SOFTGPU_FAULTS", read_faults},
    {"--clients", "TANDEM_SOFTGPU_START_CLIENTS", read_clients},
    {"--linger-ms", "TANDEM_SOFTGPU_LINGER_MS", read_linger},
    {"--users", "TANDEM_SOFTGPU_USERS", read_users},
    {"--ready-fd", nullptr, read_ready_fd},
};

std::string unknown_argument(std::string_view typed) {
  std::vector<std::string_view> flags = {"--check"};
  for (const Setting& setting : kSettings) {
    if (setting.flag) flags.emplace_back(setting.flag);
  }
  return "unknown argument '" + std::string(typed) + "'" + did_you_mean(typed, flags);
}

std::string read_environment(Settings* settings) {
  for (const Setting& setting : kSettings) {
    const char* value = setting.environment ? std::getenv(setting.environment) : nullptr;
    if (!value || !*value) continue;
    std::string error = setting.read(setting.environment, value, settings);
    if (!error.empty()) return error;
  }
  return {};
}

}  // namespace

std::string read_settings(int argc, char** argv, Settings* settings) {
  std::string error = read_environment(settings);
  for (int i = 1; error.empty() && i < argc; ++i) {
    if (std::string_view(argv[i]) == "--check") {
      settings->check_only = true;
      continue;
    }
    const Setting* match = nullptr;
    for (const Setting& setting : kSettings) {
      if (std::string_view(argv[i]) == setting.flag) match = &setting;
    }
    if (!match) return unknown_argument(argv[i]);
    if (i + 1 == argc) return std::string(argv[i]) + " needs a value";
    error = match->read(argv[i], argv[i + 1], settings);
    ++i;
  }
  if (error.empty()) {
    error = read_mig_layout(settings->mig_text, *settings->profile, settings->device_count,
                            &settings->mig);
    if (!error.empty()) error = settings->mig_name + ": " + error;
  }
  if (error.empty() && settings->dir.empty()) error = "no directory: give --dir DIR";
  return error;
}

const char* usage() {
  return "usage: tandem-softgpu --dir DIR [--timeline FILE] [--clock real|virtual]\n"
         "         [--mode time|mps] [--profile NAME] [--devices N] [--mig LAYOUT]\n"
         "         [--slice-ns N] [--switch-ns N] [--faults LIST] [--clients N] [--linger-ms N]\n"
         "         [--users own|all] [--ready-fd N]\n"
         "         [--check]  print the resulting settings as JSON, and exit\n"
         "All except --ready-fd can also be set as TANDEM_SOFTGPU_<NAME> in the environment\n"
         "(--clients: TANDEM_SOFTGPU_START_CLIENTS); flags take precedence.\n";
}

}  // namespace tandem::softgpu
