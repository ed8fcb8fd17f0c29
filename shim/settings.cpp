#include "settings.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "log.h"
#include "shm_layout.h"

namespace tandem::shim {
namespace {

struct Unit {
  const char* name;
  uint64_t scale;
};

constexpr Unit kByteUnits[] = {
    {"", 1},        {"b", 1},
    {"k", 1u << 10}, {"kib", 1u << 10}, {"kb", 1000},
    {"m", 1u << 20}, {"mib", 1u << 20}, {"mb", 1000u * 1000},
    {"g", 1u << 30}, {"gib", 1u << 30}, {"gb", 1000u * 1000 * 1000},
    {"t", 1ull << 40}, {"tib", 1ull << 40}, {"tb", 1000ull * 1000 * 1000 * 1000},
};
constexpr Unit kTimeUnits[] = {
    {"ns", 1}, {"us", 1000}, {"ms", 1000'000}, {"s", 1000'000'000},
};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_word(const char* a, const char* b) {
  while (*a && lower(*a) == *b) ++a, ++b;
  return !*a && !*b;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "12", "1.5": digits before the point in *whole, up to nine after it in *billionths.
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
    for (++at; is_digit(*at); ++at, scale /= 10) *billionths += scale * static_cast<uint64_t>(*at - '0');
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
  std::strncpy(destination, source, size - 1);
  destination[size - 1] = '\0';
}

bool is_on(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value || std::strcmp(value, "0") == 0) return false;
  if (std::strcmp(value, "1") == 0) return true;
  say_once(name, value, "is neither 0 nor 1; taking 0");
  return false;
}

const char* text_of(const char* name) {
  const char* value = std::getenv(name);
  return value && *value ? value : nullptr;
}

// <directory>/attach.sock; the directory in the order every part of Tandem uses.
void find_socket(Settings* settings) {
  char* path = settings->socket_path;
  const size_t size = sizeof(settings->socket_path);
  if (const char* socket = text_of("TANDEM_SOCKET")) return copy_text(path, size, socket);
  char directory[sizeof(settings->socket_path)] = {};
  const char* own = text_of("TANDEM_RUNTIME_DIR");
  if (!own) own = text_of("RUNTIME_DIRECTORY");
  if (own) {
    copy_text(directory, sizeof(directory), own);
  } else if (const char* xdg = text_of("XDG_RUNTIME_DIR")) {
    copy_text(directory, sizeof(directory), xdg);
    std::strncat(directory, "/tandem", sizeof(directory) - std::strlen(directory) - 1);
  } else if (access("/run/tandem", X_OK) == 0) {
    copy_text(directory, sizeof(directory), "/run/tandem");
  } else {
    char digits[24];
    size_t at = sizeof(digits) - 1;
    digits[at] = '\0';
    for (unsigned uid = geteuid(); at == sizeof(digits) - 1 || uid; uid /= 10) {
      digits[--at] = static_cast<char>('0' + uid % 10);
    }
    copy_text(directory, sizeof(directory), "/tmp/tandem-");
    std::strncat(directory, digits + at, sizeof(directory) - std::strlen(directory) - 1);
  }
  if (std::strlen(directory) + sizeof("/attach.sock") > size) {
    say_once("runtime directory", directory, "is too long for a socket; running unshared");
    return;
  }
  std::strcpy(path, directory);
  std::strcat(path, "/attach.sock");
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

void read_limits(Settings* settings) {
  if (const char* value = text_of("TANDEM_MEMORY")) {
    if (!parse_percent(value, &settings->memory_percent) &&
        !parse_bytes(value, &settings->request.memory_bytes)) {
      say_once("TANDEM_MEMORY", value, "is neither a size (20GiB) nor a share (40%); ignoring it");
    }
  }
  if (const char* value = text_of("TANDEM_SM")) {
    uint64_t count = 0;
    if (parse_percent(value, &settings->request.sm_percent)) return;
    if (parse_bytes(value, &count) && is_digit(value[std::strlen(value) - 1]) && count > 0 &&
        count < 10'000) {
      settings->sm_count = static_cast<uint32_t>(count);
    } else {
      say_once("TANDEM_SM", value, "is neither a share (30%) nor a number of SMs; ignoring it");
    }
  }
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

Settings read_settings() {
  Settings settings;
  settings.disabled = is_on("TANDEM_DISABLE");
  settings.observe = is_on("TANDEM_OBSERVE");
  if (settings.disabled) return settings;
  find_socket(&settings);
  read_priority(&settings);
  read_limits(&settings);
  read_slo(&settings);
  if (const char* name = text_of("TANDEM_NAME")) {
    copy_text(settings.request.name, sizeof(settings.request.name), name);
  }
  if (const char* group = text_of("TANDEM_GROUP")) {
    copy_text(settings.request.group, sizeof(settings.request.group), group);
  }
  if (const char* job = text_of("TANDEM_JOB_ID"); job && !parse_job_id(job, &settings.job_id)) {
    say_once("TANDEM_JOB_ID", job, "is not like j-7f3a; attaching without it");
  }
  return settings;
}

}  // namespace tandem::shim
