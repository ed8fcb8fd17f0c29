// Flags and environment variables of the device process.
#include <cstdlib>

#include "check.h"
#include "settings.h"

using namespace tandem::softgpu;

namespace {

std::string read(std::vector<const char*> arguments, Settings* settings) {
  arguments.insert(arguments.begin(), "tandem-softgpu");
  return read_settings(static_cast<int>(arguments.size()), const_cast<char**>(arguments.data()),
                       settings);
}
bool mentions(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST(flags_win_over_the_environment) {
  setenv("TANDEM_SOFTGPU_PROFILE", "a100", 1);
  setenv("TANDEM_SOFTGPU_START_CLIENTS", "3", 1);
  Settings settings;
  const std::string error =
      read({"--dir", "/d", "--profile", "tiny", "--clock", "virtual", "--mode", "mps", "--slice-ns",
            "5000", "--switch-ns", "0", "--devices", "2"},
           &settings);
  unsetenv("TANDEM_SOFTGPU_PROFILE");
  unsetenv("TANDEM_SOFTGPU_START_CLIENTS");
  CHECK(error.empty());
  CHECK(settings.profile == find_profile("tiny"));
  CHECK_EQ(settings.start_clients, 3u);
  CHECK_EQ(settings.device_count, 2u);
  CHECK_EQ(settings.arbitration.slice_ns, 5000u);
  CHECK_EQ(settings.arbitration.switch_ns, 0u);
  CHECK(settings.clock == ClockKind::kVirtual && settings.arbitration.mode == Mode::kMps);
}

TEST(a_wrong_value_is_named_with_what_is_allowed) {
  const std::pair<std::vector<const char*>, const char*> cases[] = {
      {{"--profile", "h100"}, "h200, a100, rtx4090, tiny, mini"},
      {{"--clock", "fast"}, "real or virtual"},
      {{"--mode", "mig"}, "time or mps"},
      {{"--users", "some"}, "own or all"},
      {{"--devices", "9"}, "from 1 to 8"},
      {{"--slice-ns", "2ms"}, "--slice-ns is '2ms'"},
      {{"--faults", "melt@1"}, "unknown fault 'melt@1'"},
      {{"--frobnicate", "1"}, "unknown argument '--frobnicate'"},
      {{"--clients"}, "--clients needs a value"},
      {{}, "--dir"},
  };
  for (const auto& [arguments, words] : cases) {
    Settings settings;
    CHECK(mentions(read(arguments, &settings), words));
  }
}

TEST(an_empty_variable_is_no_setting) {
  setenv("TANDEM_SOFTGPU_MODE", "", 1);
  Settings settings;
  CHECK(read({"--dir", "/d"}, &settings).empty());
  unsetenv("TANDEM_SOFTGPU_MODE");
}
