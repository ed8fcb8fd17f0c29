#include "about.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "timeline.h"

namespace tandem::softgpu {

std::string about_json(const Settings& settings) {
  char text[512];
  std::snprintf(text, sizeof text,
                "{\"profile\":\"%s\",\"clock\":\"%s\",\"mode\":\"%s\",\"slice_ns\":%" PRIu64
                ",\"switch_ns\":%" PRIu64 ",\"timeline\":",
                settings.profile->name, settings.clock == ClockKind::kReal ? "real" : "virtual",
                settings.arbitration.mode == Mode::kTime ? "time" : "mps",
                settings.arbitration.slice_ns, settings.arbitration.switch_ns);
  std::string out = text + json_string(settings.timeline_path) +
                    ",\"faults\":" + json_string(settings.faults_text) +
                    ",\"mig\":" + json_string(settings.mig_text);
  std::snprintf(text, sizeof text,
                ",\"device_count\":%u,\"start_clients\":%u,\"linger_ms\":%" PRIu64 ",\"devices\":[",
                settings.device_count, settings.start_clients, settings.linger_ms);
  out += text;
  for (const DeviceInfo& device : gpus_of(*settings.profile, settings.device_count, settings.mig)) {
    std::snprintf(text, sizeof text,
                  "%s{\"name\":\"%s\",\"sm_count\":%u,\"memory_bytes\":%" PRIu64
                  ",\"flops_per_s\":%.17g,\"bytes_per_s\":%.17g,\"copy_bytes_per_s\":%.17g}",
                  device.gpu > 0 ? "," : "", device.name, device.sm_count, device.memory_bytes,
                  device.flops_per_s, device.bytes_per_s, device.copy_bytes_per_s);
    out += text;
  }
  return out + "]}\n";
}

std::string write_about(const Settings& settings) {
  const std::string path = settings.dir + "/softgpu.json", fresh = path + ".new";
  const std::string text = about_json(settings);
  FILE* file = std::fopen(fresh.c_str(), "we");
  bool good = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  good = file && std::fclose(file) == 0 && good;
  if (good && std::rename(fresh.c_str(), path.c_str()) == 0) return {};
  return "cannot write '" + path + "': " + std::strerror(errno);
}

}  // namespace tandem::softgpu
