#include "settings.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "log.h"
#include "shm_layout.h"

namespace tandem::shim {
namespace {

struct Unit {
  const char* name;
  uint64_t scale;
};

constexpr Unit kByteUnits[] = {
    {"", 1},
    {"b", 1},
    {"k", 1u << 10},
    {"kib", 1u << 10},
    {"kb", 1000},
    {"m", 1u << 20},
    {"mib", 1u << 20},
    {"mb", 1000u * 1000},
    {"g", 1u << 30},
    {"gib", 1u << 30},
    {"gb", 1000u * 1000 * 1000},
    {"t", 1ull << 40},
    {"tib", 1ull << 40},
    {"tb", 1000ull * 1000 * 1000 * 1000},
};
constexpr Unit kTimeUnits[] = {
    {"ns", 1},
    {"us", 1000},
    {"ms", 1000'000},
    {"s", 1000'000'000},
    {"m", 60'000'000'000},
    {"min", 60'000'000'000},
    {"h", 3'600'000'000'000},
    {"d", 86'400'000'000'000},
};

constexpr char kSocketName[] = "/attach.sock";

// HAMi's names for the same limits: the one for the first device, then the one for all, in HAMi's
// order.
constexpr const char* kHamiMemory[] = {"CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_MEMORY_LIMIT"};
constexpr const char* kHamiSm[] = {"CUDA_DEVICE_SM_LIMIT_0", "CUDA_DEVICE_SM_LIMIT"};

// A variable and its value.
struct Said {
  const char* name;
  const char* value;  // null: not set
};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_word(const char* a, const char* b) {
  while (*a && lower(*a) == *b) ++a, ++b;
  return !*a && !*b;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "12", "1.5": stores the part before the point in *whole, up to nine digits after it in
// *billionths.
bool parse_number(const char** text, uint64_t* whole, uint64_t* billionths) {
  const char* at = *text;
  if (!is_digit(*at)) return false;
  *whole = *billionths = 0;
  for (; is_digit(*at); ++at) {
    if (*whole > UINT64_MAX / 10 - 1) return false;
    *whole = *whole * 10 + static_cast<uint64_t>(*at - '0');
  }
  if (*at == '.') {
    uint64_t scale = 100'000'000;
    for (++at; is_digit(*at); ++at, scale /= 10)
      *billionths += scale * static_cast<uint64_t>(*at - '0');
  }
  *text = at;
  return true;
}

template <size_t n>
bool parse_scaled(const char* text, const Unit (&units)[n], uint64_t* result) {
  uint64_t whole = 0, billionths = 0;
  if (!parse_number(&text, &whole, &billionths)) return false;
  while (*text == ' ') ++text;
  for (const Unit& unit : units) {
    if (!same_word(text, unit.name)) continue;
    __extension__ using Wide = unsigned __int128;
    const Wide scaled = Wide{whole} * unit.scale + Wide{billionths} * unit.scale / 1'000'000'000;
    if (scaled >= UINT64_MAX) return false;
    *result = static_cast<uint64_t>(scaled);
    return true;
  }
  return false;
}

void copy_text(char* destination, size_t size, const char* source) {
  const size_t length = strnlen(source, size - 1);
  std::memcpy(destination, source, length);
  destination[length] = '\0';
}

bool is_on(const char* name) {
  // In a setuid program (preloaded by ld.so.preload) the environment is the caller's, so nothing is
  // read there.
  const char* value = secure_getenv(name);
  if (!value || !*value || std::strcmp(value, "0") == 0) return false;
  if (std::strcmp(value, "1") == 0) return true;
  say_once(name, value, "is neither 0 nor 1; using 0");
  return false;
}

const char* text_of(const char* name) {
  const char* value = secure_getenv(name);
  return value && *value ? value : nullptr;
}

// HAMi's device plugin sets 0 where a pod asks for nothing: that means no limit, as if it were not
// set.
Said said_to_hami(const char* const (&names)[2]) {
  for (const char* name : names) {
    if (const char* value = text_of(name); value && std::strcmp(value, "0") != 0)
      return {name, value};
  }
  return {names[1], nullptr};
}

Said asked_memory() {
  constexpr const char* kName = "TANDEM_MEMORY";
  if (const char* value = text_of(kName)) return {kName, value};
  return said_to_hami(kHamiMemory);
}

void append(char* destination, size_t size, const char* text) {
  const size_t used = std::strlen(destination);
  copy_text(destination + used, size - used, text);
}

void write_uid(char (&text)[24]) {
  size_t at = sizeof(text) - 1;
  char digits[24];
  digits[at] = '\0';
  unsigned uid = geteuid();
  do digits[--at] = static_cast<char>('0' + uid % 10);
  while (uid /= 10);
  std::strcpy(text, digits + at);
}

// The first of the usual places that has an attach socket, so that a user's own daemon takes
// precedence over the machine's. If none has one, the last place: the helper thread looks there
// again.
void find_usual_directory(char* directory, size_t size) {
  char candidates[3][sizeof(Settings::socket_path)] = {};
  if (const char* xdg = text_of("XDG_RUNTIME_DIR")) {
    copy_text(candidates[0], size, xdg);
    append(candidates[0], size, "/tandem");
  }
  copy_text(candidates[1], size, "/run/tandem");
  char uid[24];
  write_uid(uid);
  copy_text(candidates[2], size, "/tmp/tandem-");
  append(candidates[2], size, uid);
  for (const auto& candidate : candidates) {
    if (!*candidate) continue;
    copy_text(directory, size, candidate);
    char socket[sizeof(Settings::socket_path)];
    copy_text(socket, sizeof(socket), candidate);
    append(socket, sizeof(socket), kSocketName);
    if (access(socket, F_OK) == 0) return;
  }
}

// Follows the order that every part of Tandem uses.
void find_socket(Settings* settings) {
  char* path = settings->socket_path;
  constexpr size_t kSize = sizeof(settings->socket_path);
  if (const char* socket = text_of("TANDEM_SOCKET")) return copy_text(path, kSize, socket);
  char directory[kSize] = {};
  const char* own = text_of("TANDEM_RUNTIME_DIR");
  if (!own) own = text_of("RUNTIME_DIRECTORY");
  if (!own) {
    find_usual_directory(directory, kSize);
  } else if (const size_t length = std::strcspn(own, ":"); length < kSize) {
    // systemd separates several by colons; Tandem's is the first.
    std::memcpy(directory, own, length);
  }
  if (!*directory || std::strlen(directory) + std::strlen(kSocketName) >= kSize) {
    say_once("runtime directory", own ? own : directory,
             "is too long for a socket; running unshared");
    return;
  }
  std::strcpy(path, directory);
  std::strcat(path, kSocketName);
}

void read_priority(Settings* settings) {
  const char* value = text_of("TANDEM_PRIORITY");
  if (!value) return;
  uint32_t& job_class = settings->request.job_class;
  if (same_word(value, "latency")) job_class = static_cast<uint32_t>(shm::JobClass::kLatency);
  else if (same_word(value, "normal")) job_class = static_cast<uint32_t>(shm::JobClass::kNormal);
  else if (same_word(value, "batch")) job_class = static_cast<uint32_t>(shm::JobClass::kBatch);
  else say_once("TANDEM_PRIORITY", value, "is not latency, normal or batch; ignoring it");
}

// In whole seconds, as on the wire; fractions are rounded up.
template <class T>
void read_seconds(const char* name, T* seconds) {
  const char* value = text_of(name);
  if (!value) return;
  uint64_t ns = 0;
  if (!parse_duration_ns(value, &ns))
    return say_once(name, value, "is not a time like 30s; ignoring it");
  const uint64_t whole = ns / 1'000'000'000 + (ns % 1'000'000'000 != 0);
  *seconds = static_cast<T>(std::min<uint64_t>(whole, std::numeric_limits<T>::max()));
}

void read_idle_release(Settings* settings) {
  constexpr const char* kName = "TANDEM_IDLE_RELEASE";
  const char* value = text_of(kName);
  if (value && same_word(value, "never")) settings->idle_release_s = UINT32_MAX;
  else read_seconds(kName, &settings->idle_release_s);
}

// One is ignored without the other.
void read_promise(Settings* settings) {
  const char* const names[] = {"TANDEM_PERSISTENT", "TANDEM_EPHEMERAL"};
  uint64_t bytes[2] = {};
  for (int i = 0; i < 2; ++i) {
    const char* value = text_of(names[i]);
    if (!value) return;
    if (parse_bytes(value, &bytes[i])) continue;
    say_once(names[i], value, "is not a size (4GiB); ignoring it");
    return;
  }
  settings->promise = {bytes[0], bytes[1]};
}

// A number without a unit, as `parse_bytes` reads it.
bool parse_count(const char* text, uint64_t* count) {
  return parse_bytes(text, count) && is_digit(text[std::strlen(text) - 1]);
}

// Percent of the SMs, with or without the percent sign; for HAMi, all of them means no limit.
void read_hami_sm(Settings* settings) {
  const Said said = said_to_hami(kHamiSm);
  if (!said.value) return;
  uint32_t percent = 0;
  uint64_t count = 0;
  if (!parse_percent(said.value, &percent)) {
    if (!parse_count(said.value, &count) || count == 0 || count > 100)
      return say_once(said.name, said.value, "is not a percentage (30); ignoring it");
    percent = static_cast<uint32_t>(count);
  }
  settings->request.sm_percent = percent % 100;
}

void read_sm(Settings* settings) {
  const char* value = text_of("TANDEM_SM");
  if (!value) return read_hami_sm(settings);
  uint64_t count = 0;
  if (parse_percent(value, &settings->request.sm_percent)) return;
  if (parse_count(value, &count) && count > 0 && count < 10'000) {
    settings->sm_count = static_cast<uint32_t>(count);
  } else {
    say_once("TANDEM_SM", value, "is neither a share (30%) nor a number of SMs; ignoring it");
  }
}

void read_limits(Settings* settings) {
  if (const Said said = asked_memory(); said.value) {
    if (!parse_percent(said.value, &settings->memory_percent) &&
        !parse_bytes(said.value, &settings->request.memory_bytes)) {
      say_once(said.name, said.value, "is neither a size (20GiB) nor a share (40%); ignoring it");
    }
  }
  if (const char* value = text_of("TANDEM_MEMORY_MIN");
      value && !parse_bytes(value, &settings->request.memory_min_bytes)) {
    say_once("TANDEM_MEMORY_MIN", value, "is not a size (20GiB); ignoring it");
  }
  read_promise(settings);
  read_seconds("TANDEM_WAIT_MEMORY", &settings->request.wait_memory_s);
  read_idle_release(settings);
  read_sm(settings);
}

void read_isolation(Settings* settings) {
  const char* value = text_of("TANDEM_ISOLATION");
  if (!value) return;
  constexpr const char* kWords[] = {"time", "mps", "mps+green", "mig"};  // as wire::Isolation
  for (uint32_t i = 0; i < 4; ++i) {
    if (same_word(value, kWords[i])) settings->isolation = i + 1;
  }
  if (!settings->isolation)
    say_once("TANDEM_ISOLATION", value, "is not time, mps, mps+green or mig; ignoring it");
}

// The processes that one launcher started wait for each other, so they form a group
// (docs/adr/0012). tandem._environment.launch_group does the same.
void read_launch(char* group, size_t size) {
  const char* run = text_of("TORCHELASTIC_RUN_ID");
  const char* port = text_of("MASTER_PORT");
  const char* job = text_of("SLURM_JOB_ID");
  const char* step = text_of("SLURM_STEP_ID");
  const char* tasks = text_of("SLURM_STEP_NUM_TASKS");
  if (run) std::snprintf(group, size, "torchrun:%s:%s", port ? port : "", run);
  else if (job && step && tasks && std::strcmp(tasks, "1") != 0)
    std::snprintf(group, size, "slurm:%s.%s", job, step);
  // Others wrote these variables, and a daemon would refuse the process if the name were not text.
  for (; *group; ++group) {
    if (*group < 0x20 || *group >= 0x7f) *group = '?';
  }
}

void read_group(Settings* settings) {
  auto& group = settings->request.group;
  if (const char* own = text_of("TANDEM_GROUP")) copy_text(group, sizeof(group), own);
  else read_launch(group, sizeof(group));
}

void read_log() {
  const char* value = text_of("TANDEM_LOG");
  if (!value) return;
  if (same_word(value, "off")) say_nothing();
  else if (!same_word(value, "warn"))
    say_once("TANDEM_LOG", value, "is neither warn nor off; using warn");
}

void read_markers(Settings* settings) {
  const char* value = text_of("TANDEM_MARKERS");
  if (!value) return;
  settings->mark_by_events = same_word(value, "event");
  if (!settings->mark_by_events && !same_word(value, "write"))
    say_once("TANDEM_MARKERS", value, "is neither write nor event; using write");
}

void read_slo(Settings* settings) {
  const char* value = text_of("TANDEM_SLO");
  if (!value) return;
  const char* time = std::strncmp(value, "p99=", 4) == 0 ? value + 4 : value;
  if (!parse_duration_ns(time, &settings->request.slo_p99_ns)) {
    say_once("TANDEM_SLO", value, "is not a time like p99=50ms; ignoring it");
  }
}

}  // namespace

bool parse_bytes(const char* text, uint64_t* bytes) {
  return parse_scaled(text, kByteUnits, bytes);
}

bool parse_duration_ns(const char* text, uint64_t* ns) {
  return parse_scaled(text, kTimeUnits, ns);
}

bool parse_percent(const char* text, uint32_t* percent) {
  constexpr Unit kPercent[] = {{"%", 1}};
  uint64_t value = 0;
  if (!parse_scaled(text, kPercent, &value) || value == 0 || value > 100) return false;
  *percent = static_cast<uint32_t>(value);
  return true;
}

bool parse_job_id(const char* text, uint64_t* id) {
  if (std::strncmp(text, "j-", 2) == 0) text += 2;
  uint64_t value = 0;
  size_t digits = 0;
  for (; *text; ++text, ++digits) {
    const char c = lower(*text);
    if (!is_digit(c) && !(c >= 'a' && c <= 'f')) return false;
    value = value << 4 | static_cast<uint64_t>(is_digit(c) ? c - '0' : c - 'a' + 10);
  }
  if (digits == 0 || digits > 16) return false;
  *id = value;
  return true;
}

// As in NVIDIA's "Multi-Process Service": a percentage, possibly with a fraction.
uint32_t read_mps_sms() {
  const char* value = text_of("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  char* end = nullptr;
  const double percent = value ? std::strtod(value, &end) : 100;
  if (value && (*end || !(percent > 0) || percent > 100)) return wire::kAllSms;
  const double sms = percent * 1000;
  return sms < 1 ? 1 : static_cast<uint32_t>(sms);
}

Settings read_settings() {
  Settings settings;
  read_log();
  settings.disabled = is_on("TANDEM_DISABLE");
  settings.observe = is_on("TANDEM_OBSERVE");
  if (settings.disabled) return settings;
  find_socket(&settings);
  read_priority(&settings);
  read_limits(&settings);
  read_isolation(&settings);
  settings.mps_sms = read_mps_sms();
  read_slo(&settings);
  read_markers(&settings);
  if (const char* value = text_of("TANDEM_SWAPPABLE")) {
    settings.request.swappable = same_word(value, "1") ? 1 : same_word(value, "0") ? 2 : 0;
    if (!settings.request.swappable)
      say_once("TANDEM_SWAPPABLE", value, "is neither 0 nor 1; ignoring it");
  }
  if (is_on("TANDEM_CHECKPOINT")) settings.request.swappable = 3;
  if (const char* value = text_of("TANDEM_PREEMPTIBLE")) {
    settings.request.preemptible = same_word(value, "1") ? 1 : same_word(value, "0") ? 2 : 0;
    if (!settings.request.preemptible)
      say_once("TANDEM_PREEMPTIBLE", value, "is neither 0 nor 1; ignoring it");
  }
  if (const char* name = text_of("TANDEM_NAME")) {
    copy_text(settings.request.name, sizeof(settings.request.name), name);
  }
  read_group(&settings);
  if (const char* job = text_of("TANDEM_JOB_ID"); job && !parse_job_id(job, &settings.job_id)) {
    say_once("TANDEM_JOB_ID", job, "is not a job id like j-7f3a; attaching without it");
  }
  return settings;
}

uint64_t agreed_limit(uint64_t device_bytes) {
  const char* asked = asked_memory().value;
  if (!asked || !text_of("TANDEM_JOB_ID") || is_on("TANDEM_DISABLE")) return shm::kNoLimit;
  uint32_t percent = 0;
  if (parse_percent(asked, &percent)) return device_bytes / 100 * percent;
  uint64_t bytes = 0;
  return parse_bytes(asked, &bytes) ? bytes : shm::kNoLimit;
}

}  // namespace tandem::shim
